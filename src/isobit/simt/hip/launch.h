// SPDX-License-Identifier: Apache-2.0
// Launches a kernel on an AMD GPU, and says which one where that fails. host/launch.h says what a
// kernel is.
#pragma once

#include <cstddef>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/core/machine.h"
#include "isobit/simt/carver.h"
#include "isobit/simt/hip/device.h"
#include "isobit/simt/hip/runtime.h"

namespace isobit::simt {

using Stream = hipStream_t;

inline constexpr Device kDevice = Device::hip;
// The hardware counts the threads of a launch in 32 bits.
inline constexpr std::int64_t kMostBlocks = 0xffffffff / kMostThreads;

namespace detail {

inline std::vector<Gpu> all_gpus() {
  int count = 0;
  (void)hipGetDeviceCount(&count);
  std::vector<Gpu> gpus;
  for (int device = 0; device < count; ++device) {
    const auto value = [&](hipDeviceAttribute_t attribute) {
      int value = 0;
      (void)hipDeviceGetAttribute(&value, attribute, device);
      return value;
    };
    // AMD numbers its own; no sm_ comes with them, so what needs one declines.
    gpus.push_back({.multiprocessors = value(hipDeviceAttributeMultiprocessorCount),
                    .shared_bytes = value(hipDeviceAttributeMaxSharedMemoryPerBlock),
                    .l2_bytes = value(hipDeviceAttributeL2CacheSize),
                    .gfx = 10 * value(hipDeviceAttributeComputeCapabilityMajor) +
                           value(hipDeviceAttributeComputeCapabilityMinor)});
  }
  return gpus;
}

}  // namespace detail

// The device that is current.
inline Gpu gpu() {
  static const std::vector<Gpu> gpus = detail::all_gpus();
  int device = 0;
  (void)hipGetDevice(&device);
  return static_cast<std::size_t>(device) < gpus.size() ? gpus[static_cast<std::size_t>(device)]
                                                        : Gpu{};
}

namespace detail {

// Without the bounds a kernel of 1024 threads is assumed, and its registers are spilled.
template <class Kernel>
__attribute__((amdgpu_flat_work_group_size(1, Kernel::kMostThreads))) __global__ void enter(
    const Kernel kernel) {
  if constexpr (kHasMemory<Kernel>) {
    extern __shared__ __attribute__((aligned(128))) std::byte shared[];
    Carver carver(shared);
    kernel(kernel.memory(carver));
  } else {
    kernel();
  }
}

}  // namespace detail

template <class Kernel>
void launch(Stream stream, const LaunchShape& shape, const Kernel& kernel) {
  Carver counter;
  if constexpr (kHasMemory<Kernel>) kernel.memory(counter);
  hipError_t error = hipErrorInvalidConfiguration;
  if (shape.cluster == 1) {
    void* arguments[] = {const_cast<Kernel*>(&kernel)};
    error = hipLaunchKernel(reinterpret_cast<const void*>(detail::enter<Kernel>),
                            dim3(static_cast<unsigned>(shape.blocks)),
                            dim3(static_cast<unsigned>(shape.threads)), arguments,
                            static_cast<std::size_t>(counter.bytes()), stream);
  }
  if (error == hipSuccess) return;
  throw DeviceError(text(__PRETTY_FUNCTION__, ": ", hipGetErrorString(error), "; ", shape.blocks,
                         " blocks of ", shape.threads, " threads, clusters of ", shape.cluster,
                         ", ", counter.bytes(), " bytes of shared memory"));
}

}  // namespace isobit::simt
