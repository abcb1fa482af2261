// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU, and whether there is one.
#pragma once

#include <cuda_runtime.h>

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
  return devices == 0 ? "there is no NVIDIA GPU" : "";
}

namespace detail {

inline void checked(const char* what, cudaError_t error) {
  if (error != cudaSuccess) throw DeviceError(text(what, ": ", cudaGetErrorString(error)));
}
inline cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace detail

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
