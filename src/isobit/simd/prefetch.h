// SPDX-License-Identifier: Apache-2.0
// Fetching memory that will be read or written soon.
#pragma once

#include "isobit/core/inline.h"

namespace isobit::simd {

ISOBIT_INLINE void fetch_to_first_cache(const void* address) { __builtin_prefetch(address, 0, 3); }
ISOBIT_INLINE void fetch_to_second_cache(const void* address) { __builtin_prefetch(address, 0, 2); }
ISOBIT_INLINE void fetch_to_be_written(const void* address) { __builtin_prefetch(address, 1, 3); }

// What a loop over rows of a panel needs eight rows later, if rows are lines of the caches.
template <int kInRow, class T>
ISOBIT_INLINE void fetch_ahead(const T* row) {
  constexpr int kLine = 64 / sizeof(T), kAhead = 8;
  if constexpr (kInRow % kLine == 0) {
#pragma GCC unroll 4
    for (int i = 0; i < kInRow; i += kLine) fetch_to_first_cache(row + kAhead * kInRow + i);
  }
}

}  // namespace isobit::simd
