// SPDX-License-Identifier: Apache-2.0
// Sums over rows that lie side by side, each in a lane of its own, in the order of core/order.h.
#pragma once

#include <algorithm>

#include "isobit/simd/row_loops.h"
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

// So many vectors at most are folded together: all of two lines of the caches, so that what is
// fetched is used at once.
template <class S>
inline constexpr int kFoldedTogether =
    S::kWidth == 1 ? 1 : std::min(4, static_cast<int>(128 / sizeof(typename S::Real)) / S::kWidth);

// A block of the order, whose element i has the terms at(i, v) in the v-th of some vectors. What it
// lacks counts as +0, and is not added: that changes nothing but the sign of a zero, which the
// total repairs. Out of line: inlined, compilers take minutes.
template <class S, Want kWant, bool kWhole, int kVectors, class At>
[[gnu::noinline]] void fold_block(std::int64_t count, const At& at, Terms<S>* to) {
  using V = typename S::V;
  constexpr bool kSum = kWant != Want::dot, kDot = kWant != Want::sum;
  V sums[kVectors][order::kLanes], dots[kVectors][order::kLanes];
  const auto put = [&](int v, int lane, const Terms<S>& terms) ISOBIT_INLINE_LAMBDA {
    if constexpr (kSum) sums[v][lane] = terms.a;
    if constexpr (kDot) dots[v][lane] = terms.b;
  };
  const auto sum_of = [](const Terms<S>& a, const Terms<S>& b) ISOBIT_INLINE_LAMBDA {
    return Terms<S>{kSum ? S::add(a.a, b.a) : a.a, kDot ? S::add(a.b, b.b) : a.b};
  };
  // Of a row of the block, and of that half a block later.
  const auto first_fold = [&](int row, int lane, int v) ISOBIT_INLINE_LAMBDA {
    const int i = row * order::kLanes + lane, j = i + order::kBlock / 2;
    Terms<S> folded{S::zero(), S::zero()};
    if (kWhole || i < count) {
      const Terms<S> upper = at(i, v);
      if constexpr (kSum) folded.a = upper.a;
      if constexpr (kDot) folded.b = S::mul(upper.a, upper.b);
    }
    if (kWhole || j < count) {
      const Terms<S> lower = at(j, v);
      if constexpr (kSum) folded.a = S::add(folded.a, lower.a);
      if constexpr (kDot) folded.b = S::fma(lower.a, lower.b, folded.b);
    }
    return folded;
  };
  // Row after row, since lines of different rows may push each other out of the first cache.
  const auto fold_lane = [&](int lane) ISOBIT_INLINE_LAMBDA {
    Terms<S> even[kVectors], odd[kVectors];
    const auto fold = [&](int row, const auto& body) ISOBIT_INLINE_LAMBDA {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) body(v, first_fold(row, lane, v));
    };
    fold(0, [&](int v, const Terms<S>& terms) ISOBIT_INLINE_LAMBDA { even[v] = terms; });
    fold(2, [&](int v, const Terms<S>& terms)
                ISOBIT_INLINE_LAMBDA { even[v] = sum_of(even[v], terms); });
    fold(1, [&](int v, const Terms<S>& terms) ISOBIT_INLINE_LAMBDA { odd[v] = terms; });
    fold(3, [&](int v, const Terms<S>& terms)
                ISOBIT_INLINE_LAMBDA { put(v, lane, sum_of(even[v], sum_of(odd[v], terms))); });
  };
  int lanes = order::kLanes;
  if (kWhole || count > 2 * order::kLanes) {
    for (int lane = 0; lane < order::kLanes; ++lane) fold_lane(lane);
  } else {
    const auto second = static_cast<int>(count) - order::kLanes;
    lanes = count < order::kLanes ? static_cast<int>(count) : order::kLanes;
    for (int v = 0; v < kVectors; ++v) {
      const auto of = [&](std::int64_t i) ISOBIT_INLINE_LAMBDA { return at(i, v); };
      int lane = 0;
      for (; lane < second; ++lane) put(v, lane, detail::fold_rows<S, kWant, 2>(lane, of));
      for (; lane < lanes; ++lane) put(v, lane, detail::fold_rows<S, kWant, 1>(lane, of));
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    for (int half = order::kLanes / 2, left = lanes; half >= 1; half /= 2) {
      for (int i = 0; i < half && i + half < left; ++i) {
        if constexpr (kSum) sums[v][i] = S::add(sums[v][i], sums[v][i + half]);
        if constexpr (kDot) dots[v][i] = S::add(dots[v][i], dots[v][i + half]);
      }
      left = std::min(left, half);
    }
    to[v] = {kSum ? sums[v][0] : S::zero(), kDot ? dots[v][0] : S::zero()};
  }
}

// The sums of up to kMost rows side by side, block after block.
template <class S, Want kWant, int kMost>
class SumsAbreast {
 public:
  // A block of the first `rows`, whose element i has the terms at(i, j, part...) in the lanes from
  // the j-th on.
  template <class At>
  ISOBIT_INLINE void add_block(std::int64_t rows, std::int64_t count, const At& at) {
    constexpr int kTogether = kFoldedTogether<S>;
    std::int64_t j = 0;
    if constexpr (kTogether > 1)
      for (; j + kTogether * S::kWidth <= rows; j += kTogether * S::kWidth)
        add<kTogether>(j, count,
                       [&](int i, int v) ISOBIT_INLINE_LAMBDA { return at(i, j + v * S::kWidth); });
    for_each_vector<S>(rows - j, [&](std::int64_t k, auto... part) ISOBIT_INLINE_LAMBDA {
      add<1>(j + k, count, [&](int i, int) ISOBIT_INLINE_LAMBDA { return at(i, j + k, part...); });
    });
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
  template <int kVectors, class At>
  ISOBIT_INLINE void add(std::int64_t j, std::int64_t count, const At& at) {
    Terms<S> folded[kVectors];
    if (count == order::kBlock)
      fold_block<S, kWant, true, kVectors>(count, at, folded);
    else
      fold_block<S, kWant, false, kVectors>(count, at, folded);
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kWant != Want::dot) sums_[j / S::kWidth + v].push(Lanes<S>(folded[v].a));
      if constexpr (kWant != Want::sum) dots_[j / S::kWidth + v].push(Lanes<S>(folded[v].b));
    }
  }

  order::PairTree<Lanes<S>> sums_[kMost / S::kWidth], dots_[kMost / S::kWidth];
};

}  // namespace isobit::simd
