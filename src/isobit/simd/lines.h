// SPDX-License-Identifier: Apache-2.0
// Loops over the vectors of a row, whole cache lines a turn.
#pragma once

#include "isobit/simd/vec.h"

namespace isobit::simd {

// Calls body(i, part...) for every vector of [begin, end) of elements T, whole cache lines of T a
// turn: streaming stores want a line's vectors one after the other.
template <class S, class T, class Body>
ISOBIT_INLINE void for_each_vector(std::int64_t begin, std::int64_t end, const Body& body) {
  constexpr int kLine = 64 / sizeof(T);
  std::int64_t i = begin;
  for (; i + kLine <= end; i += kLine) {
#pragma GCC unroll 8
    for (int j = 0; j < kLine; j += S::kWidth) body(i + j);
  }
  for (; i + S::kWidth <= end; i += S::kWidth) body(i);
  if (i < end) body(i, S::first(end - i));
}

}  // namespace isobit::simd
