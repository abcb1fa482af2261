// SPDX-License-Identifier: Apache-2.0
// Launches a kernel on a GPU, and says which one where that fails. host/launch.h says what a kernel
// is.
#pragma once

#include <cstddef>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/core/machine.h"
#include "isobit/simt/carver.h"
#include "isobit/simt/cuda/device.h"

namespace isobit::simt {

using Stream = cudaStream_t;

inline constexpr Device kDevice = Device::cuda;
inline constexpr std::int64_t kMostBlocks = 0x7fffffff;

namespace detail {

inline std::vector<Gpu> all_gpus() {
  int count = 0;
  cudaGetDeviceCount(&count);
  std::vector<Gpu> gpus;
  for (int device = 0; device < count; ++device) {
    const auto value = [&](cudaDeviceAttr attribute) {
      int value = 0;
      cudaDeviceGetAttribute(&value, attribute, device);
      return value;
    };
    gpus.push_back(
        {10 * value(cudaDevAttrComputeCapabilityMajor) + value(cudaDevAttrComputeCapabilityMinor),
         value(cudaDevAttrMultiProcessorCount), value(cudaDevAttrMaxSharedMemoryPerBlockOptin),
         value(cudaDevAttrL2CacheSize)});
  }
  return gpus;
}

}  // namespace detail

// The device that is current.
inline Gpu gpu() {
  static const std::vector<Gpu> gpus = detail::all_gpus();
  int device = 0;
  cudaGetDevice(&device);
  return static_cast<std::size_t>(device) < gpus.size() ? gpus[static_cast<std::size_t>(device)]
                                                        : Gpu{};
}

namespace detail {

// Blocks of kMostThreads for which a multiprocessor shall have registers.
template <class Kernel>
constexpr int least_blocks() {
  if constexpr (requires { Kernel::kLeastBlocks; })
    return Kernel::kLeastBlocks;
  else
    return 1;
}

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kMostThreads, least_blocks<Kernel>())
    enter(const __grid_constant__ Kernel kernel) {
  if constexpr (kHasMemory<Kernel>) {
    extern __shared__ __align__(128) std::byte shared[];
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
  const auto function = detail::enter<Kernel>;
  cudaError_t error = cudaSuccess;
  if (counter.bytes() > 48 << 10)  // more than a kernel gets unasked
    error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(counter.bytes()));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(counter.bytes());
  config.stream = stream;
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(shape.cluster);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = shape.cluster > 1 ? 1 : 0;
  if (error == cudaSuccess) error = cudaLaunchKernelEx(&config, function, kernel);
  if (error == cudaSuccess) return;
  throw DeviceError(text(__PRETTY_FUNCTION__, ": ", cudaGetErrorString(error), "; ", shape.blocks,
                         " blocks of ", shape.threads, " threads, clusters of ", shape.cluster,
                         ", ", counter.bytes(), " bytes of shared memory"));
}

}  // namespace isobit::simt
