// SPDX-License-Identifier: Apache-2.0
// What a back end for GPUs, or the emulation of one, brings to the operations. None is linked into
// the library: it must load where there is no GPU.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "isobit/core/device_memory.h"
#include "isobit/core/execution.h"
#include "isobit/core/machine.h"
#include "isobit/dispatch/variant.h"

namespace isobit {

// The variants of one pass. Whoever reads them knows the types that `first` points to.
struct DeviceVariants {
  std::string_view op, pass;
  const void* first;
  std::size_t count;
};

template <class Args, class Problem>
DeviceVariants device_variants(std::string_view op, std::string_view pass,
                               std::span<const Variant<Args, Problem>> variants) {
  return {op, pass, variants.data(), variants.size()};
}

struct DeviceLibrary {
  Device device;
  std::string (*missing)();  // why nothing can run; empty where it can
  Gpu (*gpu)();              // the current one
  std::string (*about)();    // what a reader wants to know of it: its name, memory, clocks
  DeviceMemory memory;
  std::span<const DeviceVariants> operations;
};

// What a call lends that is to run on the library's device: its memory, on a stream.
Execution execution_on(const DeviceLibrary& library, void* stream);

// For the rest of the process, and before any operation is asked for its variants. The library
// outlives it.
void attach(const DeviceLibrary& library);
const DeviceLibrary* attached(Device device);

// Nothing where no attached library has the pass.
DeviceVariants variants_on(Device device, std::string_view op, std::string_view pass);

}  // namespace isobit
