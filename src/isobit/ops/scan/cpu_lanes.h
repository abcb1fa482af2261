// SPDX-License-Identifier: Apache-2.0
// Vectors whose lanes are combined with each other by a monoid.
#pragma once

#include <utility>

#include "isobit/ops/scan/formula_order.h"
#include "isobit/simd/vec.h"

namespace isobit::scan::ISOBIT_ISA {

// Lanes of a vector, of one lane too.
template <class S>
struct Lanes {
  using V = typename S::V;
  static constexpr int kWidth = S::kWidth;

  // Each lane that has the bit `kHalf` is combined with the last before its half.
  template <class M, int kHalf>
  ISOBIT_INLINE static typename M::Value halves(const typename M::Value& value) {
    typename M::Value before, result;
    for (int p = 0; p < M::kParts; ++p) before.part[p] = spread<kHalf>(value.part[p], kLanes);
    const auto after = M::combine(before, value);
    for (int p = 0; p < M::kParts; ++p)
      result.part[p] = upper<kHalf>(value.part[p], after.part[p], kLanes);
    return result;
  }
  // Neighbours combined: those of the first in the lower half, and of the second in the upper one.
  template <class M>
  ISOBIT_INLINE static typename M::Value pairs(const typename M::Value& first,
                                               const typename M::Value& second) {
    if constexpr (kWidth == 1) {
      return M::combine(first, second);
    } else {
      typename M::Value even, odd;
      for (int p = 0; p < M::kParts; ++p) {
        even.part[p] = every_other<0>(first.part[p], second.part[p], kLanes);
        odd.part[p] = every_other<1>(first.part[p], second.part[p], kLanes);
      }
      return M::combine(even, odd);
    }
  }
  // The last lane in all.
  template <class Value>
  ISOBIT_INLINE static Value last(Value value) {
    if constexpr (kWidth > 1)
      for (auto& part : value.part) part = spread<kWidth>(part, kLanes);
    return value;
  }

 private:
  static constexpr auto kLanes = std::make_integer_sequence<int, kWidth>();

  template <int kHalf, int... kLane>
  ISOBIT_INLINE static V spread(V v, std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(v, v, (kLane / (2 * kHalf) * 2 * kHalf + kHalf - 1)...);
  }
  template <int kFirst, int... kLane>
  ISOBIT_INLINE static V every_other(V first, V second, std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(first, second, (2 * kLane + kFirst)...);
  }
  template <int kHalf, int... kLane>
  ISOBIT_INLINE static V upper(V low, V high, std::integer_sequence<int, kLane...>) {
    // As a choice, not as a shuffle: what made `high` takes the mask, and no instruction more.
    using Lane = std::conditional_t<sizeof(typename S::Real) == 8, std::int64_t, std::int32_t>;
    using Mask [[gnu::vector_size(sizeof(V))]] = Lane;
    constexpr Mask kUpper = {(kLane & kHalf ? -1 : 0)...};
    return kUpper ? high : low;
  }
};

// Calls body(i) for i in [0, kCount): unrolled, so that arrays are registers, or in a loop.
template <bool kUnrolled, int kCount, class Body>
ISOBIT_INLINE void for_each(const Body& body) {
  if constexpr (kUnrolled) {
#pragma GCC unroll 32
    for (int i = 0; i < kCount; ++i) body(i);
  } else {
#pragma GCC unroll 1
    for (int i = 0; i < kCount; ++i) body(i);
  }
}

// Sklansky's scheme over the lanes of adjacent vectors.
template <class M, int kCount>
ISOBIT_INLINE void sklansky_in_lanes(typename M::Value (&values)[kCount]) {
  using L = Lanes<typename M::S>;
  if constexpr (L::kWidth == 1) return sklansky_in_memory<M>(values);
#pragma GCC unroll 32
  for (auto& value : values) {
    if constexpr (L::kWidth > 1) value = L::template halves<M, 1>(value);
    if constexpr (L::kWidth > 2) value = L::template halves<M, 2>(value);
    if constexpr (L::kWidth > 4) value = L::template halves<M, 4>(value);
    if constexpr (L::kWidth > 8) value = L::template halves<M, 8>(value);
  }
#pragma GCC unroll 8
  for (int half = 1; half < kCount; half *= 2)
#pragma GCC unroll 32
    for (int i = 0; i < kCount; ++i)
      if (i & half) values[i] = M::combine(L::last(values[i / half * half - 1]), values[i]);
}

}  // namespace isobit::scan::ISOBIT_ISA
