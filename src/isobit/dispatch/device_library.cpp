// SPDX-License-Identifier: Apache-2.0
// Keeps what was attached: one library a device, for the length of the process.
#include "isobit/dispatch/device_library.h"

#include <atomic>

namespace isobit {
namespace {

std::atomic<const DeviceLibrary*> libraries[kDeviceCount];

}  // namespace

Execution execution_on(const DeviceLibrary& library, void* stream) {
  Execution execution;
  execution.machine = Machine::here();
  execution.machine.device = library.device;
  execution.machine.gpu = library.gpu();
  execution.allocator = {library.memory.allocate, library.memory.release, stream};
  execution.stream = stream;
  return execution;
}

void attach(const DeviceLibrary& library) {
  libraries[static_cast<int>(library.device)].store(&library, std::memory_order_release);
}

const DeviceLibrary* attached(Device device) {
  return libraries[static_cast<int>(device)].load(std::memory_order_acquire);
}

DeviceVariants variants_on(Device device, std::string_view op, std::string_view pass) {
  if (const DeviceLibrary* library = attached(device))
    for (const DeviceVariants& variants : library->operations)
      if (variants.op == op && variants.pass == pass) return variants;
  return {op, pass, nullptr, 0};
}

}  // namespace isobit
