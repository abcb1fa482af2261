// SPDX-License-Identifier: Apache-2.0
// Lines that lie apart as vectors along the other dimension: a matrix is transposed in registers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "isobit/simd/vec.h"

namespace isobit::simd {

namespace detail {

template <class S>
inline constexpr int kInLane = 16 / sizeof(typename S::Real);

// Every other 16 bytes of both, from the first or the second on.
template <class S, int kFirst, int... kIndex>
ISOBIT_INLINE typename S::V every_other_lane(typename S::V a, typename S::V b,
                                             std::integer_sequence<int, kIndex...>) {
  constexpr int kIn = kInLane<S>;
  return __builtin_shufflevector(a, b, ((2 * (kIndex / kIn) + kFirst) * kIn + kIndex % kIn)...);
}
template <class S, int kFirst>
ISOBIT_INLINE typename S::V every_other_lane(typename S::V a, typename S::V b) {
  return every_other_lane<S, kFirst>(a, b, std::make_integer_sequence<int, S::kWidth>());
}

}  // namespace detail

// As many vectors as one has elements, as a matrix that is transposed.
template <class S>
ISOBIT_INLINE void transpose(typename S::V (&v)[S::kWidth]) {
  using Real = typename S::Real;
  using V = typename S::V;
  using B = Bytes;
  constexpr int kWidth = S::kWidth, kIn = detail::kInLane<S>, kRows = kWidth / kIn;
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    V* const rows = v + i * kIn;
    const auto at = [&](int row) ISOBIT_INLINE_LAMBDA {
      return __builtin_bit_cast(typename B::V, rows[row]);
    };
    const auto set = [&](int row, typename B::V value)
                         ISOBIT_INLINE_LAMBDA { rows[row] = __builtin_bit_cast(V, value); };
    if constexpr (kIn == 2) {
      const auto a = at(0), b = at(1);
      set(0, B::template zip_low<double>(a, b));
      set(1, B::template zip_high<double>(a, b));
    } else {
      const auto a = B::template zip_low<Real>(at(0), at(1));
      const auto b = B::template zip_low<Real>(at(2), at(3));
      const auto c = B::template zip_high<Real>(at(0), at(1));
      const auto d = B::template zip_high<Real>(at(2), at(3));
      set(0, B::template zip_low<double>(a, b));
      set(1, B::template zip_high<double>(a, b));
      set(2, B::template zip_low<double>(c, d));
      set(3, B::template zip_high<double>(c, d));
    }
  }
  // Now v[i * kIn + c] has in its j-th 16 bytes element j * kIn + c of the rows from i * kIn on.
#pragma GCC unroll 4
  for (int c = 0; c < kIn; ++c) {
    if constexpr (kRows == 2) {
      const V a = v[c], b = v[kIn + c];
      v[c] = detail::every_other_lane<S, 0>(a, b);
      v[kIn + c] = detail::every_other_lane<S, 1>(a, b);
    } else if constexpr (kRows == 4) {
      const V even_low = detail::every_other_lane<S, 0>(v[c], v[kIn + c]);
      const V even_high = detail::every_other_lane<S, 0>(v[2 * kIn + c], v[3 * kIn + c]);
      const V odd_low = detail::every_other_lane<S, 1>(v[c], v[kIn + c]);
      const V odd_high = detail::every_other_lane<S, 1>(v[2 * kIn + c], v[3 * kIn + c]);
      v[c] = detail::every_other_lane<S, 0>(even_low, even_high);
      v[kIn + c] = detail::every_other_lane<S, 0>(odd_low, odd_high);
      v[2 * kIn + c] = detail::every_other_lane<S, 1>(even_low, even_high);
      v[3 * kIn + c] = detail::every_other_lane<S, 1>(odd_low, odd_high);
    }
  }
}

// Calls visit(k, vectors) with kGroups vectors of lanes for each k in turn. Elements of a lane are
// adjacent. Lanes that are not there get the elements of the last.
template <class S, int kGroups, class T, class Visit>
ISOBIT_INLINE void across(const T* from, std::int64_t stride, std::int64_t lanes, std::int64_t k,
                          const Visit& visit) {
  constexpr int kWidth = S::kWidth, kLanes = kGroups * kWidth;
  // A vector of each lane: the caches need not keep the lines that so many lanes are on, of which
  // few fit where the stride is a power of two.
  const auto square = [&](std::int64_t at, int count, const auto& line, auto... part)
                          ISOBIT_INLINE_LAMBDA {
                            typename S::V groups[kGroups][kWidth], vectors[kGroups];
#pragma GCC unroll 2
                            for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 16
                              for (int i = 0; i < kWidth; ++i)
                                groups[g][i] = S::load(line(g * kWidth + i) + at, part...);
                              if constexpr (kWidth > 1) transpose<S>(groups[g]);
                            }
#pragma GCC unroll 16
                            for (int i = 0; i < kWidth; ++i) {
                              if (i >= count) break;
#pragma GCC unroll 2
                              for (int g = 0; g < kGroups; ++g) vectors[g] = groups[g][i];
                              visit(at + i, vectors);
                            }
                          };
  const auto all = [&](const auto& line) ISOBIT_INLINE_LAMBDA {
    std::int64_t done = 0;
    for (; done + kWidth <= k; done += kWidth) square(done, kWidth, line);
    if (done < k) square(done, static_cast<int>(k - done), line, S::first(k - done));
  };
  if (lanes >= kLanes)
    all([&](int lane) ISOBIT_INLINE_LAMBDA { return from + lane * stride; });
  else
    all([&](int lane) ISOBIT_INLINE_LAMBDA {
      return from + std::min<std::int64_t>(lane, lanes - 1) * stride;
    });
}

}  // namespace isobit::simd
