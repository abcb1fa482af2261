// SPDX-License-Identifier: Apache-2.0
// Memory of an AMD GPU, and whether there is one.
#pragma once

#include <cstdint>
#include <string>

#include "isobit/core/device_memory.h"
#include "isobit/core/error.h"
#include "isobit/simt/hip/runtime.h"

namespace isobit::simt {

// Why nothing can be launched here; empty where it can.
inline std::string missing() {
  if (std::string why = hip::missing_runtime(); !why.empty()) return why;
  int devices = 0;
  const hipError_t error = hipGetDeviceCount(&devices);
  if (error == hipErrorNoDevice || (error == hipSuccess && devices == 0)) return "no AMD GPU found";
  if (error != hipSuccess) return hipGetErrorString(error);
  return hip::missing_code();
}

namespace detail {

inline hipStream_t stream_of(void* stream) { return static_cast<hipStream_t>(stream); }

template <hipMemcpyKind kKind>
void copy(void* stream, void* to, const void* from, std::size_t bytes) {
  hip::checked("hipMemcpyAsync", hipMemcpyAsync(to, from, bytes, kKind, stream_of(stream)));
}

}  // namespace detail

// The current GPU: name, memory and its bandwidth by bus and clock, the fastest clock.
inline std::string about() {
  int device = 0;
  char name[256] = "";
  std::size_t bytes = 0;
  hip::checked("hipGetDevice", hipGetDevice(&device));
  hip::checked("hipDeviceGetName", hipDeviceGetName(name, sizeof name, device));
  hip::checked("hipDeviceTotalMem", hipDeviceTotalMem(&bytes, device));
  const auto attribute = [&](hipDeviceAttribute_t which) {
    int value = 0;
    hip::checked("hipDeviceGetAttribute", hipDeviceGetAttribute(&value, which, device));
    return std::int64_t{value};
  };
  // Clocks are in kHz; two transfers each for every line of the bus.
  const std::int64_t bytes_a_millisecond = 2 * attribute(hipDeviceAttributeMemoryClockRate) *
                                           attribute(hipDeviceAttributeMemoryBusWidth) / 8;
  return text(name, ", ", bytes >> 20, " MiB at ", bytes_a_millisecond / 1000000, " GB/s, ",
              attribute(hipDeviceAttributeClockRate) / 1000, " MHz");
}

inline constexpr DeviceMemory kMemory = {
    .allocate = [](void* stream, std::size_t bytes) -> void* {
      void* memory = nullptr;
      const hipError_t error = hipMallocAsync(&memory, bytes, detail::stream_of(stream));
      if (error == hipErrorOutOfMemory) {
        (void)hipGetLastError();  // else the next launch would report it
        return nullptr;
      }
      hip::checked("hipMallocAsync", error);
      return memory;
    },
    .release =
        [](void* stream, void* memory, std::size_t) {
          hip::checked("hipFreeAsync", hipFreeAsync(memory, detail::stream_of(stream)));
        },
    .upload = detail::copy<hipMemcpyHostToDevice>,
    .download = detail::copy<hipMemcpyDeviceToHost>,
    .copy = detail::copy<hipMemcpyDeviceToDevice>,
    .synchronize =
        [](void* stream) {
          hip::checked("hipStreamSynchronize", hipStreamSynchronize(detail::stream_of(stream)));
        }};

}  // namespace isobit::simt
