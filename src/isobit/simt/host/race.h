// SPDX-License-Identifier: Apache-2.0
// Data races of emulated kernels, in a program whose kernels are compiled for it (race.cpp).
#pragma once

#include "isobit/simt/host/emulator.h"

namespace isobit::simt::host {

// From now on a launch in which two threads race throws DeviceError.
void detect_races();

}  // namespace isobit::simt::host
