// SPDX-License-Identifier: Apache-2.0
// A tensor of a generated call, and the bytes that it covers, counted without the library's help.
#pragma once

#include <cstdint>
#include <optional>

#include "isobit/dispatch/operation.h"
#include "isobit/isobit.h"

namespace isobit::fuzz {

struct Array {
  const Argument* argument;
  isobit_tensor tensor = {};
  bool given = true;
  std::size_t block = 0;                       // the one it lies in
  std::int64_t begin = 0;                      // bytes from the block's start
  std::optional<std::uintptr_t> address = {};  // instead: one that leads nowhere

  bool is_output() const { return argument->role == Role::output; }

  // Bytes; 0 for a dtype that there is not.
  std::int64_t element_size() const {
    constexpr std::int64_t kSizes[] = {0, 4, 2, 2, 8, 4, 8, 1, 1};
    return tensor.dtype >= ISOBIT_F32 && tensor.dtype <= ISOBIT_U8 ? kSizes[tensor.dtype] : 0;
  }

  // 2^126 stands for more.
  __int128 elements() const {
    __int128 count = 1;
    for (int i = 0; i < tensor.rank; ++i) {
      if (tensor.shape[i] == 0) return 0;
      count = count > (__int128{1} << 62) ? __int128{1} << 126 : count * tensor.shape[i];
    }
    return count;
  }

  // The bytes from its first element to behind its last; none for a tensor that no call may have.
  std::optional<__int128> reach() const {
    if (tensor.rank < 1 || tensor.rank > ISOBIT_MAX_RANK || element_size() == 0) return {};
    bool empty = false;
    for (int i = 0; i < tensor.rank; ++i) {
      if (tensor.shape[i] < 0) return {};
      empty |= tensor.shape[i] == 0;
    }
    if (empty) return 0;
    constexpr __int128 kFar = __int128{1} << 100;  // stands for more
    __int128 last = 0;
    for (int i = 0; i < tensor.rank; ++i) {
      if (tensor.shape[i] > 1 && tensor.strides[i] < 0) return {};
      last += (static_cast<__int128>(tensor.shape[i]) - 1) * tensor.strides[i];
      if (last > kFar) return kFar;
    }
    return (last + 1) * element_size();
  }

  // Calls body(byte in the block, bytes) for all elements, adjacent ones of a row together. For
  // tensors of few elements that lie in their storage.
  template <class Body>
  void each_run(const Body& body) const {
    if (elements() == 0) return;
    const int last = tensor.rank - 1;
    const bool adjacent = tensor.strides[last] == 1 || tensor.shape[last] == 1;
    const std::int64_t run = adjacent ? tensor.shape[last] : 1;
    std::int64_t index[ISOBIT_MAX_RANK] = {};
    for (;;) {
      std::int64_t offset = 0;
      for (int i = 0; i <= last; ++i) offset += index[i] * tensor.strides[i];
      body(begin + offset * element_size(), run * element_size());
      int i = last;
      for (index[i] += run; index[i] == tensor.shape[i]; ++index[i]) {
        index[i] = 0;
        if (--i < 0) return;
      }
    }
  }
};

}  // namespace isobit::fuzz
