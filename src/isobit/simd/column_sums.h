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
template <class S, Want kWant, bool kWhole, class At>
[[gnu::noinline]] Terms<S> fold_block(std::int64_t count, const At& at) {
  using V = typename S::V;
  constexpr bool kSum = kWant != Want::dot, kDot = kWant != Want::sum;
  constexpr int kHalf = order::kRows / 2;
  V sums[order::kLanes], dots[order::kLanes];
  const auto put = [&](int lane, const Terms<S>& terms) ISOBIT_INLINE_LAMBDA {
    if constexpr (kSum) sums[lane] = terms.a;
    if constexpr (kDot) dots[lane] = terms.b;
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
        if constexpr (kDot) dot[row] = S::mul(upper.a, upper.b);
      }
      if (kWhole || j < count) {
        const Terms<S> lower = at(j);
        sum[row] = S::add(sum[row], lower.a);
        if constexpr (kDot) dot[row] = S::fma(lower.a, lower.b, dot[row]);
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
    for (; lane < second; ++lane) put(lane, detail::fold_rows<S, kWant, 2>(lane, at));
    lanes = count < order::kLanes ? static_cast<int>(count) : order::kLanes;
    for (; lane < lanes; ++lane) put(lane, detail::fold_rows<S, kWant, 1>(lane, at));
  }
  for (int half = order::kLanes / 2; half >= 1; half /= 2) {
    for (int i = 0; i < half && i + half < lanes; ++i) {
      if constexpr (kSum) sums[i] = S::add(sums[i], sums[i + half]);
      if constexpr (kDot) dots[i] = S::add(dots[i], dots[i + half]);
    }
    lanes = lanes < half ? lanes : half;
  }
  return {kSum ? sums[0] : S::zero(), kDot ? dots[0] : S::zero()};
}

// The sums of up to kMost rows side by side, block after block.
template <class S, Want kWant, int kMost>
class SumsAbreast {
 public:
  // A block of the rows from the j-th on, a vector of them, whose element i has the terms at(i).
  template <class At>
  ISOBIT_INLINE void add_block(std::int64_t j, std::int64_t count, const At& at) {
    const Terms<S> folded = count == order::kBlock ? fold_block<S, kWant, true>(count, at)
                                                   : fold_block<S, kWant, false>(count, at);
    if constexpr (kWant != Want::dot) sums_[j / S::kWidth].push(Lanes<S>(folded.a));
    if constexpr (kWant != Want::sum) dots_[j / S::kWidth].push(Lanes<S>(folded.b));
  }
  // Gives {sum, dot} of each row; a sum that is not wanted is 0.
  template <class Result>
  ISOBIT_INLINE void put(std::int64_t rows, Result* to) const {
    using Real = typename S::Real;
    for (std::int64_t j = 0; j < rows; j += S::kWidth) {
      alignas(64) Real sum[S::kWidth], dot[S::kWidth];
      S::template store<Stores::cached>(sum, sums_[j / S::kWidth].total().v);
      S::template store<Stores::cached>(dot, dots_[j / S::kWidth].total().v);
      for (int k = 0; k < S::kWidth && j + k < rows; ++k) to[j + k] = {sum[k], dot[k]};
    }
  }

 private:
  order::PairTree<Lanes<S>> sums_[kMost / S::kWidth], dots_[kMost / S::kWidth];
};

}  // namespace isobit::simd
