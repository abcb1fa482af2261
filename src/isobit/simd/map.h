// SPDX-License-Identifier: Apache-2.0
// Loops over a row that treat every element alike, and their tails.
#pragma once

#include <cstring>

#include "isobit/simd/stores.h"
#include "isobit/simd/vec.h"

namespace isobit::simd {

namespace detail {

inline constexpr int kStep = 64;  // elements: whole lines at a time, as streaming stores need

template <class S, Stores kStores, class T, class Op>
ISOBIT_INLINE void map_step(const T* a, const T* b, T* y, const Op& op) {
#pragma GCC unroll 8
  for (int j = 0; j < kStep; j += S::kWidth)
    S::template store<kStores>(y + j, op(S::load(a + j), S::load(b + j)));
}

}  // namespace detail

// y[i] = op(a[i], b[i]) for vectors of S over elements of type T. Tails pass through a padded copy.
template <class S, Stores kStores, class T, class Op>
ISOBIT_INLINE void map(const T* a, const T* b, T* y, std::int64_t count, const Op& op) {
  constexpr int kStep = detail::kStep;
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) detail::map_step<S, kStores>(a + i, b + i, y + i, op);
  if (i < count) {
    alignas(64) T tail[3][kStep] = {};
    const std::size_t bytes = (count - i) * sizeof(T);
    std::memcpy(tail[0], a + i, bytes);
    std::memcpy(tail[1], b + i, bytes);
    detail::map_step<S, Stores::cached>(tail[0], tail[1], tail[2], op);
    std::memcpy(y + i, tail[2], bytes);
  }
}

}  // namespace isobit::simd
