// SPDX-License-Identifier: Apache-2.0
// What stands beside the processor.
#pragma once

#include <string>

#include "isobit/core/machine.h"

namespace isobit::lab {

// Brings the operations the variants for GPUs: for the one of this machine, and as the emulator
// executes them. Before anybody asks an operation for its variants.
void attach_devices();

// Why there is no such device, and what to do.
std::string missing_device(Device device);

}  // namespace isobit::lab
