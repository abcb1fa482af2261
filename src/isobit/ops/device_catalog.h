// SPDX-License-Identifier: Apache-2.0
// All that one back end for GPUs brings: the other place that a new operator must be added to.
#pragma once

#include "isobit/dispatch/device_library.h"

namespace isobit {

const DeviceLibrary& device_library();

}  // namespace isobit
