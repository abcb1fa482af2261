// SPDX-License-Identifier: Apache-2.0
// Deals out a block's shared memory on devices: to the host, which counts, as to every thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/inline.h"

namespace isobit::simt {

class Carver {
 public:
  ISOBIT_INLINE explicit Carver(std::byte* base = nullptr) : base_(base) {}

  template <class T>
  ISOBIT_INLINE T* take(std::int64_t count, std::int64_t alignment = 16) {
    const std::int64_t offset = (bytes_ + alignment - 1) / alignment * alignment;
    bytes_ = offset + count * static_cast<std::int64_t>(sizeof(T));
    return reinterpret_cast<T*>(base_ + offset);
  }
  ISOBIT_INLINE std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  std::int64_t bytes_ = 0;
};

template <class Kernel>
constexpr bool kHasMemory =
    requires(const Kernel& kernel, Carver carver) { kernel.memory(carver); };

}  // namespace isobit::simt
