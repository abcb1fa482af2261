// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU, and whether there is one.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "isobit/core/device_memory.h"
#include "isobit/core/error.h"

namespace isobit::simt {

// Why nothing can be launched here; empty where it can.
inline std::string missing() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaErrorInsufficientDriver)
    return text("the NVIDIA driver is missing or too old for CUDA ", CUDART_VERSION / 1000, ".",
                CUDART_VERSION % 1000 / 10);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return devices == 0 ? "no NVIDIA GPU found" : "";
}

namespace detail {

inline void checked(const char* what, cudaError_t error) {
  if (error != cudaSuccess) throw DeviceError(text(what, ": ", cudaGetErrorString(error)));
}
inline cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace detail

// The current GPU: name, memory and its bandwidth by bus and clock, the fastest clock.
inline std::string about() {
  int device = 0;
  cudaDeviceProp properties;
  detail::checked("cudaGetDevice", cudaGetDevice(&device));
  detail::checked("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, device));
  const auto value = [&](cudaDeviceAttr attribute) {
    int value = 0;
    detail::checked("cudaDeviceGetAttribute", cudaDeviceGetAttribute(&value, attribute, device));
    return static_cast<std::int64_t>(value);
  };
  // Clocks are in kHz; two transfers each for every line of the bus.
  const std::int64_t bytes_a_millisecond =
      2 * value(cudaDevAttrMemoryClockRate) * value(cudaDevAttrGlobalMemoryBusWidth) / 8;
  return text(properties.name, ", ", properties.totalGlobalMem >> 20, " MiB at ",
              bytes_a_millisecond / 1000000, " GB/s, ", value(cudaDevAttrClockRate) / 1000, " MHz");
}

inline constexpr DeviceMemory kMemory = {
    .allocate = [](void* stream, std::size_t bytes) -> void* {
      void* memory = nullptr;
      const cudaError_t error = cudaMallocAsync(&memory, bytes, detail::stream_of(stream));
      if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();  // else the next launch would report it
        return nullptr;
      }
      detail::checked("cudaMallocAsync", error);
      return memory;
    },
    .release =
        [](void* stream, void* memory, std::size_t) {
          detail::checked("cudaFreeAsync", cudaFreeAsync(memory, detail::stream_of(stream)));
        },
    .upload =
        [](void* stream, void* to, const void* from, std::size_t bytes) {
          detail::checked(
              "cudaMemcpyAsync",
              cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, detail::stream_of(stream)));
        },
    .download =
        [](void* stream, void* to, const void* from, std::size_t bytes) {
          detail::checked(
              "cudaMemcpyAsync",
              cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, detail::stream_of(stream)));
        },
    .copy =
        [](void* stream, void* to, const void* from, std::size_t bytes) {
          detail::checked("cudaMemcpyAsync",
                          cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                          detail::stream_of(stream)));
        },
    .synchronize =
        [](void* stream) {
          detail::checked("cudaStreamSynchronize",
                          cudaStreamSynchronize(detail::stream_of(stream)));
        }};

}  // namespace isobit::simt
