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

// A block of the order, whose element i has the terms at(i). What it lacks counts as +0, and is not
// added: that changes nothing but the sign of a zero, which the total repairs. Out of line:
// inlined, compilers take minutes.
template <class S, bool kWhole, class At>
[[gnu::noinline]] Terms<S> fold_block(std::int64_t count, const At& at) {
  using V = typename S::V;
  constexpr int kHalf = order::kRows / 2;
  V sums[order::kLanes], dots[order::kLanes];
  const auto put = [&](int lane, const Terms<S>& terms) ISOBIT_INLINE_LAMBDA {
    sums[lane] = terms.a;
    dots[lane] = terms.b;
  };
  const auto fold_any = [&](int lane) ISOBIT_INLINE_LAMBDA {
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
    put(lane, {S::add(S::add(sum[0], sum[2]), S::add(sum[1], sum[3])),
               S::add(S::add(dot[0], dot[2]), S::add(dot[1], dot[3]))});
  };
  int lanes = order::kLanes;
  if (kWhole || count > 2 * order::kLanes) {
    for (int lane = 0; lane < order::kLanes; ++lane) fold_any(lane);
  } else {
    const auto second = static_cast<int>(count) - order::kLanes;
    int lane = 0;
    for (; lane < second; ++lane) put(lane, detail::fold_rows<S, Want::both, 2>(lane, at));
    lanes = count < order::kLanes ? static_cast<int>(count) : order::kLanes;
    for (; lane < lanes; ++lane) put(lane, detail::fold_rows<S, Want::both, 1>(lane, at));
  }
  for (int half = order::kLanes / 2; half >= 1; half /= 2) {
    for (int i = 0; i < half && i + half < lanes; ++i) {
      sums[i] = S::add(sums[i], sums[i + half]);
      dots[i] = S::add(dots[i], dots[i + half]);
    }
    lanes = lanes < half ? lanes : half;
  }
  return {sums[0], dots[0]};
}

}  // namespace isobit::simd
