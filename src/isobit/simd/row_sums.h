// SPDX-License-Identifier: Apache-2.0
// Sums over a row in the canonical order of core/order.h, with vectors of any width that
// divides 64.
#pragma once

#include <algorithm>

#include "isobit/core/order.h"
#include "isobit/simd/lanes.h"
#include "isobit/simd/vec.h"

namespace isobit::simd {

// Which sums are wanted of a row.
enum class Want { sum, dot, both };

// What a row gives at one place: a is summed, and so is a*b.
template <class S>
struct Terms {
  typename S::V a, b;
};

template <class S>
struct Sums {
  typename S::Real sum, dot;
};

// Numbers that stand in memory, as the functions below want them.
template <class S>
struct Stored {
  const typename S::Real* numbers;

  template <class... Part>
  ISOBIT_INLINE typename S::V operator()(std::int64_t i, Part... part) const {
    return S::load(numbers + i, part...);
  }
};
template <class S>
struct StoredTerms {
  const typename S::Real *a, *b;

  template <class... Part>
  ISOBIT_INLINE Terms<S> operator()(std::int64_t i, Part... part) const {
    return {S::load(a + i, part...), S::load(b + i, part...)};
  }
};

// What is summed alone, as both terms.
template <class S, class Get>
struct Alone {
  const Get& get;

  template <class... Part>
  ISOBIT_INLINE Terms<S> operator()(std::int64_t i, Part... part) const {
    const typename S::V a = get(i, part...);
    return {a, a};
  }
};

namespace detail {

// Folds the first kCount rows of a block for the vector of lanes that starts at i. The last of them
// may be a part. Rows that a block lacks would add +0.0, which changes nothing but the sign of a
// zero; the total repairs that.
template <class S, Want kWant, int kCount, class Get, class... Part>
ISOBIT_INLINE Terms<S> fold_rows(std::int64_t i, const Get& get, Part... part) {
  using V = typename S::V;
  constexpr bool kSum = kWant != Want::dot, kDot = kWant != Want::sum;
  const auto at = [&](auto row) ISOBIT_INLINE_LAMBDA {
    constexpr int kRow = decltype(row)::value;
    if constexpr (kRow == kCount - 1)
      return get(i + kRow * order::kLanes, part...);
    else
      return get(i + kRow * order::kLanes);
  };
  V sums[4], dots[4];
  const auto first_fold = [&](auto row) ISOBIT_INLINE_LAMBDA {
    constexpr int kRow = decltype(row)::value;
    if constexpr (kRow < kCount) {
      const Terms<S> upper = at(row);
      if constexpr (kSum) sums[kRow] = upper.a;
      if constexpr (kDot) dots[kRow] = S::mul(upper.a, upper.b);
      if constexpr (kRow + 4 < kCount) {
        const Terms<S> lower = at(std::integral_constant<int, kRow + 4>{});
        if constexpr (kSum) sums[kRow] = S::add(upper.a, lower.a);
        if constexpr (kDot) dots[kRow] = S::fma(lower.a, lower.b, dots[kRow]);
      }
    }
  };
  first_fold(std::integral_constant<int, 0>{});
  first_fold(std::integral_constant<int, 1>{});
  first_fold(std::integral_constant<int, 2>{});
  first_fold(std::integral_constant<int, 3>{});
  const auto fold_onto = [&](int to, int from) ISOBIT_INLINE_LAMBDA {
    if constexpr (kSum) sums[to] = S::add(sums[to], sums[from]);
    if constexpr (kDot) dots[to] = S::add(dots[to], dots[from]);
  };
  if constexpr (kCount > 2) fold_onto(0, 2);
  if constexpr (kCount > 3) fold_onto(1, 3);
  if constexpr (kCount > 1) fold_onto(0, 1);
  return {kSum ? sums[0] : dots[0], kDot ? dots[0] : sums[0]};
}

// Folds lanes, held in kCount vectors, to one vector.
template <class S, int kCount>
ISOBIT_INLINE typename S::V fold_vectors(typename S::V* lanes) {
#pragma GCC unroll 8
  for (int half = kCount / 2; half >= 1; half /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) lanes[i] = S::add(lanes[i], lanes[i + half]);
  return lanes[0];
}

template <class S, Want kWant, int kCount>
ISOBIT_INLINE Terms<S> fold_wanted(typename S::V* sums, typename S::V* dots) {
  const typename S::V none = S::zero();
  return {kWant == Want::dot ? none : fold_vectors<S, kCount>(sums),
          kWant == Want::sum ? none : fold_vectors<S, kCount>(dots)};
}

// A block of which the first kRows rows are there, all of them whole. Like the functions below it
// gives the block's sums but for the last folds, within a vector.
template <class S, Want kWant, int kRows, class Get>
ISOBIT_INLINE Terms<S> whole_rows(std::int64_t start, const Get& get) {
  constexpr int kVectors = order::kLanes / S::kWidth;
  typename S::V sums[kVectors], dots[kVectors];
  const auto fold = [&](int j) ISOBIT_INLINE_LAMBDA {
    const Terms<S> folded = fold_rows<S, kWant, kRows>(start + j * S::kWidth, get);
    sums[j] = folded.a;
    dots[j] = folded.b;
  };
  if constexpr (kVectors <= 4 || kRows == 1) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) fold(j);
  } else {  // copies side by side would be loaded at once, into more registers than there are
#pragma GCC unroll 1
    for (int j = 0; j < kVectors; ++j) fold(j);
  }
  return fold_wanted<S, kWant, kVectors>(sums, dots);
}

// Stands in a loop whose body may be a copy of one vector: gcc would make such a loop a call of
// memcpy, which takes longer than all of the block.
ISOBIT_INLINE void stay_a_loop() { asm volatile(""); }

// The same, where the last row holds only `last` elements: first the vectors that it has, last
// those that it lacks.
template <class S, Want kWant, int kRows, class Get>
ISOBIT_INLINE Terms<S> part_of_last_row(std::int64_t start, std::int64_t last, const Get& get) {
  constexpr int kVectors = order::kLanes / S::kWidth;
  typename S::V sums[kVectors], dots[kVectors];
  const auto fold = [&](int j, auto rows, auto... part) ISOBIT_INLINE_LAMBDA {
    const Terms<S> folded =
        fold_rows<S, kWant, decltype(rows)::value>(start + j * S::kWidth, get, part...);
    if constexpr (kWant != Want::dot) sums[j] = folded.a;
    if constexpr (kWant != Want::sum) dots[j] = folded.b;
  };
  const std::integral_constant<int, kRows> all;
  if constexpr (kVectors <= 4) {  // a part of nothing takes less than a branch
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      fold(j, all, S::first(std::clamp<std::int64_t>(last - j * S::kWidth, 0, S::kWidth)));
    return fold_wanted<S, kWant, kVectors>(sums, dots);
  }
#pragma GCC unroll 1
  for (int j = 0; j < kVectors; ++j) {
    const std::int64_t left = last - j * S::kWidth;
    if (left >= S::kWidth)
      fold(j, all);
    else if (left > 0)
      fold(j, all, S::first(left));
    else
      fold(j, std::integral_constant<int, kRows - 1>{});
    stay_a_loop();
  }
  return fold_wanted<S, kWant, kVectors>(sums, dots);
}

// A block of a part of its first row alone. Lanes without an element would add +0.0, as missing
// rows would: they are left out.
template <class S, Want kWant, class Get>
ISOBIT_INLINE Terms<S> part_of_only_row(std::int64_t start, std::int64_t count, const Get& get) {
  constexpr int kVectors = order::kLanes / S::kWidth;
  typename S::V sums[kVectors], dots[kVectors];
  int used = 0;
  const auto take = [&](auto... part) ISOBIT_INLINE_LAMBDA {
    const Terms<S> folded = fold_rows<S, kWant, 1>(start + used * S::kWidth, get, part...);
    sums[used] = folded.a;
    dots[used] = folded.b;
    ++used;
    stay_a_loop();
  };
  while ((used + 1) * S::kWidth <= count) take();
  if (used * S::kWidth < count) take(S::first(count - used * S::kWidth));
  for (int half = kVectors / 2; half >= 1; half /= 2) {
    for (int i = 0; i + half < used; ++i) {
      sums[i] = S::add(sums[i], sums[i + half]);
      dots[i] = S::add(dots[i], dots[i + half]);
    }
    used = std::min(used, half);
  }
  return {sums[0], dots[0]};
}

// A row's last block, with missing elements. Out of line, since it comes in fourteen shapes: whole
// blocks and whole halves do not come here.
template <class S, Want kWant, class Get>
[[gnu::noinline]] Terms<S> last_block(std::int64_t start, std::int64_t count, const Get& get) {
  const std::int64_t rows = (count + order::kLanes - 1) / order::kLanes;
  const std::int64_t last = count - (rows - 1) * order::kLanes;
  const auto shape = [&](auto constant) ISOBIT_INLINE_LAMBDA {
    constexpr int kRows = decltype(constant)::value;
    if constexpr (kRows != order::kRows / 2 && kRows != order::kRows)
      if (last == order::kLanes) return whole_rows<S, kWant, kRows>(start, get);
    if constexpr (kRows == 1)
      return part_of_only_row<S, kWant>(start, last, get);
    else
      return part_of_last_row<S, kWant, kRows>(start, last, get);
  };
  switch (rows) {
    case 1:  return shape(std::integral_constant<int, 1>{});
    case 2:  return shape(std::integral_constant<int, 2>{});
    case 3:  return shape(std::integral_constant<int, 3>{});
    case 4:  return shape(std::integral_constant<int, 4>{});
    case 5:  return shape(std::integral_constant<int, 5>{});
    case 6:  return shape(std::integral_constant<int, 6>{});
    case 7:  return shape(std::integral_constant<int, 7>{});
    default: return shape(std::integral_constant<int, 8>{});
  }
}

// A block of `count` elements where a vector is one lane: a loop over the lanes, for the shapes
// above would be hundreds of copies of `get`.
template <class S, Want kWant, class Get>
[[gnu::noinline]] Sums<S> block_of_lanes(std::int64_t start, std::int64_t count, const Get& get) {
  using Real = typename S::Real;
  constexpr bool kSum = kWant != Want::dot, kDot = kWant != Want::sum;
  constexpr int kLanes = order::kLanes, kHalf = order::kRows / 2;
  Real sums[kHalf * kLanes] = {}, dots[kHalf * kLanes] = {};
  for (int i = 0; i < kHalf * kLanes && i < count; ++i) {
    const Terms<S> upper = get(start + i);
    if constexpr (kSum) sums[i] = upper.a;
    if constexpr (kDot) dots[i] = S::mul(upper.a, upper.b);
    if (i + order::kBlock / 2 >= count) continue;
    const Terms<S> lower = get(start + i + order::kBlock / 2);
    if constexpr (kSum) sums[i] = S::add(upper.a, lower.a);
    if constexpr (kDot) dots[i] = S::fma(lower.a, lower.b, dots[i]);
  }
#pragma GCC unroll 1
  for (int half = kHalf * kLanes / 2; half >= 1; half /= 2)
#pragma GCC unroll 1
    for (int i = 0; i < half; ++i) {
      if constexpr (kSum) sums[i] = S::add(sums[i], sums[i + half]);
      if constexpr (kDot) dots[i] = S::add(dots[i], dots[i + half]);
    }
  return {sums[0], dots[0]};
}

// The last folds.
template <class S, Want kWant>
ISOBIT_INLINE Sums<S> fold_within(const Terms<S>& block) {
  return {kWant == Want::dot ? 0 : S::fold(block.a), kWant == Want::sum ? 0 : S::fold(block.b)};
}

template <class S, Want kWant, class Get>
ISOBIT_INLINE Sums<S> row_sums(std::int64_t count, const Get& get) {
  order::PairTree<typename S::Real> sums, dots;
  std::int64_t i = 0;
  const auto push = [&](Sums<S> block) ISOBIT_INLINE_LAMBDA {
    if constexpr (kWant != Want::dot) sums.push(block.sum);
    if constexpr (kWant != Want::sum) dots.push(block.dot);
  };
  if constexpr (S::kWidth == 1) {
    for (; i < count; i += order::kBlock)
      push(block_of_lanes<S, kWant>(i, count - i < order::kBlock ? count - i : order::kBlock, get));
  } else {
    for (; i + order::kBlock <= count; i += order::kBlock)
      push(fold_within<S, kWant>(whole_rows<S, kWant, order::kRows>(i, get)));
    if (count - i == order::kBlock / 2)  // 256, 768, 1280: half a block is worth no call
      push(fold_within<S, kWant>(whole_rows<S, kWant, order::kRows / 2>(i, get)));
    else if (i < count)
      push(fold_within<S, kWant>(last_block<S, kWant>(i, count - i, get)));
  }
  return {kWant == Want::dot ? 0 : sums.total(), kWant == Want::sum ? 0 : dots.total()};
}

}  // namespace detail

// The sum of get(i) over i in [0, count). get(i) gives the vector at i, get(i, part) its first
// lanes and zeros.
template <class S, class Get>
ISOBIT_INLINE typename S::Real row_sum(std::int64_t count, const Get& get) {
  return detail::row_sums<S, Want::sum>(count, Alone<S, Get>{get}).sum;
}

// The sum of numbers that take many instructions each, of which row_sum would have a hundred
// copies: numbers(begin, count) stores those of a block, and gives where.
template <class S, class Numbers>
ISOBIT_INLINE typename S::Real row_sum_of_stored(std::int64_t count, const Numbers& numbers) {
  order::PairTree<typename S::Real> sums;
  for (std::int64_t begin = 0; begin < count; begin += order::kBlock) {
    const std::int64_t left = count - begin < order::kBlock ? count - begin : order::kBlock;
    // Of a block, the total of its sums is the sum but for the sign of a zero, which goes.
    sums.push(row_sum<S>(left, Stored<S>{numbers(begin, left)}));
  }
  return sums.total();
}

// The sum of a*b, where get(i) gives both.
template <class S, class Get>
ISOBIT_INLINE typename S::Real row_dot(std::int64_t count, const Get& get) {
  return detail::row_sums<S, Want::dot>(count, get).dot;
}

// The sums of a and of a*b, where get(i) gives both.
template <class S, class Get>
ISOBIT_INLINE Sums<S> row_sum_and_dot(std::int64_t count, const Get& get) {
  return detail::row_sums<S, Want::both>(count, get);
}

// Rows of up to so many elements are short: they are summed side by side. The last folds are those
// of as many rows as a vector has lanes, at once: first each by short_row_sums, which wants an
// element at least; then fold_each().
inline constexpr std::int64_t kShortRow = order::kBlock / 2 - 1;

ISOBIT_INLINE bool is_short(std::int64_t count) { return 0 < count && count <= kShortRow; }

template <class S, Want kWant, class Get>
ISOBIT_INLINE Terms<S> short_row_sums(std::int64_t count, const Get& get) {
  if (count == order::kLanes) return detail::whole_rows<S, kWant, 1>(0, get);
  if (count < order::kLanes) return detail::part_of_only_row<S, kWant>(0, count, get);
  if (count == 2 * order::kLanes) return detail::whole_rows<S, kWant, 2>(0, get);
  return detail::last_block<S, kWant>(0, count, get);
}

// The sums of these rows, one in each lane.
template <class S>
ISOBIT_INLINE typename S::V fold_each(typename S::V (&rows)[S::kWidth]) {
  if constexpr (S::kWidth > 1) transpose<S>(rows);
  return S::add(S::zero(), detail::fold_vectors<S, S::kWidth>(rows));  // never -0
}

}  // namespace isobit::simd
