// SPDX-License-Identifier: Apache-2.0
// What stands beside the processor.
#pragma once

#include <string>

#include "isobit/core/machine.h"

namespace isobit::lab {

// Those that execute what nvcc made of the kernels: tools for tests, which few have.
inline constexpr Device kExecutors[] = {Device::ptx, Device::sass};
inline bool is_executor(Device device) { return device == Device::ptx || device == Device::sass; }

// Brings the operations the variants for GPUs: for the one of this machine, as the emulator
// executes their sources, and as the executor executes what nvcc made of them. Before anybody asks
// an operation for its variants.
void attach_devices();

// The file of an attached executor.
const std::string& executor_file(Device executor);

// What the executor counted since it was asked last: a line of JSON for each kernel.
std::string take_counters(Device executor);

// Why there is no such device, and what to do.
std::string missing_device(Device device);

}  // namespace isobit::lab
