// SPDX-License-Identifier: Apache-2.0
// Loops over the vectors of a row, whole cache lines a turn; and rows whose elements may lie apart.
#pragma once

#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/simd/vec.h"

namespace isobit::simd {

// Calls body(i, part...) for every vector of [begin, end) of elements T, whole cache lines of T a
// turn: streaming stores want a line's vectors one after the other.
template <class S, class T, class Body>
ISOBIT_INLINE void for_each_vector(std::int64_t begin, std::int64_t end, const Body& body) {
  constexpr int kLine = 64 / sizeof(T);
  std::int64_t i = begin;
  if constexpr (S::kWidth > 1)
    for (; i + kLine <= end; i += kLine) {
#pragma GCC unroll 8
      for (int j = 0; j < kLine; j += S::kWidth) body(i + j);
    }
  for (; i + S::kWidth <= end; i += S::kWidth) body(i);
  if (i < end) body(i, S::first(end - i));
}

// Whether a line of memory begins here, as streaming stores want it.
ISOBIT_INLINE bool streamable(const void* to) {
  return reinterpret_cast<std::uintptr_t>(to) % 64 == 0;
}

// Whether `count` elements are whole lines of memory.
template <class T>
ISOBIT_INLINE bool are_whole_lines(const T* to, std::int64_t count) {
  return streamable(to) && count % std::int64_t{64 / sizeof(T)} == 0;
}

// How many of `count` elements stand before the first whole line of memory.
template <class T>
ISOBIT_INLINE std::int64_t before_lines(const T* to, std::int64_t count) {
  const std::uintptr_t beyond = reinterpret_cast<std::uintptr_t>(to) % 64;
  const auto before = static_cast<std::int64_t>((64 - beyond) % 64 / sizeof(T));
  return before < count ? before : count;
}

// Whether to stream the whole lines of a row that is asked to be stored past the caches. A line
// that is stored partly so and partly otherwise costs several, and the first and last line of a row
// may be shared with its neighbours: they are stored into the caches, which pays among many others.
template <class T>
ISOBIT_INLINE bool streams_lines(const T* to, std::int64_t count) {
  constexpr std::int64_t kLine = 64 / sizeof(T), kMany = 8;
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(T) != 0) return false;  // never begins one
  return count >= kMany * kLine || are_whole_lines(to, count);
}

// A vector's first `count` lanes, adjacent in memory or `stride` elements apart.
template <class S, class T>
ISOBIT_INLINE void store_lanes(T* to, std::int64_t stride, std::int64_t count,
                               typename S::V value) {
  if (stride == 1 && count >= S::kWidth) return S::store(to, value);
  if (stride == 1) return S::store(to, value, S::first(count));
  typename S::Real lanes[S::kWidth];
  S::store(lanes, value);
  for (std::int64_t i = 0; i < S::kWidth && i < count; ++i) to[i * stride] = narrow<T>(lanes[i]);
}

// Elements as what is computed in, and the way back.
template <class S, class T>
ISOBIT_INLINE void load_line(const T* from, std::int64_t stride, std::int64_t count,
                             typename S::Real* to) {
  using Real = typename S::Real;
  std::int64_t i = 0;
  if (stride == 1)
    for (; i + S::kWidth <= count; i += S::kWidth) S::store(to + i, S::load(from + i));
  for (; i < count; ++i) to[i] = widen<Real>(from[i * stride]);
}
template <class S, class T>
ISOBIT_INLINE void store_line(const typename S::Real* from, T* to, std::int64_t stride,
                              std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += S::kWidth)
    if (stride == 1 && i + S::kWidth <= count)
      S::store(to + i, S::load(from + i));
    else
      for (std::int64_t j = i; j < count && j < i + S::kWidth; ++j)
        to[j * stride] = narrow<T>(from[j]);
}

}  // namespace isobit::simd
