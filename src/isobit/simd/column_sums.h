// SPDX-License-Identifier: Apache-2.0
// Sums over rows that lie side by side, each in a lane of its own, in the order of core/order.h.
#pragma once

#include "isobit/simd/row_sums.h"

namespace isobit::simd {

// A vector as order::PairTree adds it.
template <class S>
struct Lanes {
  typename S::V v;

  Lanes() = default;
  ISOBIT_INLINE explicit Lanes(int) : v(S::zero()) {}
  ISOBIT_INLINE explicit Lanes(typename S::V value) : v(value) {}
  ISOBIT_INLINE friend Lanes operator+(Lanes a, Lanes b) { return Lanes(S::add(a.v, b.v)); }
  ISOBIT_INLINE Lanes& operator+=(Lanes other) { return *this = *this + other; }
};

// A block of the order, whose element i has the terms at(i); what it lacks counts as +0. Out of
// line: inlined, compilers take minutes.
template <class S, bool kWhole, class At>
[[gnu::noinline]] Terms<S> fold_block(std::int64_t count, const At& at) {
  using V = typename S::V;
  constexpr int kHalf = order::kRows / 2;
  V sums[order::kLanes], dots[order::kLanes];
  for (int lane = 0; lane < order::kLanes; ++lane) {
    V sum[kHalf], dot[kHalf];
#pragma GCC unroll 4
    for (int row = 0; row < kHalf; ++row) {
      const int i = row * order::kLanes + lane, j = i + order::kBlock / 2;
      sum[row] = dot[row] = S::zero();
      if (kWhole || i < count) {
        const Terms<S> upper = at(i);
        sum[row] = upper.a;
        dot[row] = S::mul(upper.a, upper.b);
      }
      if (kWhole || j < count) {
        const Terms<S> lower = at(j);
        sum[row] = S::add(sum[row], lower.a);
        dot[row] = S::fma(lower.a, lower.b, dot[row]);
      }
    }
    sums[lane] = S::add(S::add(sum[0], sum[2]), S::add(sum[1], sum[3]));
    dots[lane] = S::add(S::add(dot[0], dot[2]), S::add(dot[1], dot[3]));
  }
  for (int half = order::kLanes / 2; half >= 1; half /= 2)
    for (int i = 0; i < half; ++i) {
      sums[i] = S::add(sums[i], sums[i + half]);
      dots[i] = S::add(dots[i], dots[i + half]);
    }
  return {sums[0], dots[0]};
}

}  // namespace isobit::simd
