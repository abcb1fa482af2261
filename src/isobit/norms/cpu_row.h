// SPDX-License-Identifier: Apache-2.0
// A row as the formulas of norms want it: summed by core/order.h to the letter, and in vectors.
#pragma once

#include <limits>

#include "isobit/core/order.h"
#include "isobit/norms/statistics.h"
#include "isobit/simd/prefetch.h"
#include "isobit/simd/row_sums.h"
#include "isobit/simd/vec_scalar.h"

namespace isobit::norms {

// Everything, one element after the other: all of the scalar variant, and the rare long way of the
// others. get(i) gives an element. S names the instruction set that this is compiled for: the
// linker must keep the copies apart.
template <class S, class Get>
class SpecifiedRow {
 public:
  using Real = typename S::Real;
  using Scalar = simd::ScalarOf<Real>;

  SpecifiedRow(std::int64_t cols, const Get& get) : get_(get), cols_(cols) {}

  const SpecifiedRow& rare() const { return *this; }

  Real sum() const { return order::sum<Real>(cols_, get_); }
  Moments<Real> deviations(Real mean) const {
    return moments([&](Real x) { return x - mean; });
  }
  Real squares() const { return order::dot<Real>(cols_, get_, get_); }

  template <class F>
  Real sum(const F& f) const {
    return order::sum<Real>(cols_, [&](std::int64_t i) { return f(get_(i)); });
  }
  template <class F>
  Moments<Real> moments(const F& f) const {
    const auto of = [&](std::int64_t i) { return f(get_(i)); };
    return {order::sum<Real>(cols_, of), order::dot<Real>(cols_, of, of)};
  }

  Extremes<Real> extremes() const {
    constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
    Extremes<Real> result{kInfinity, -kInfinity};
    for (std::int64_t i = 0; i < cols_; ++i) {
      const Real x = get_(i);
      if (x != x) return {x, x};
      result.lowest = x < result.lowest ? x : result.lowest;
      result.highest = x > result.highest ? x : result.highest;
    }
    return result;
  }

 private:
  Get get_;
  std::int64_t cols_;
};

template <class T, class Real>
struct Elements {
  const T* x;
  ISOBIT_INLINE Real operator()(std::int64_t i) const { return widen<Real>(x[i]); }
};

namespace detail {

template <bool kFetches, class T>
ISOBIT_INLINE void fetch(const T* later) {
  if constexpr (kFetches) simd::fetch_to_second_cache(later);
}

// What is summed of a row.
template <class S, class T>
struct Loaded {
  const T* x;

  template <class... Part>
  ISOBIT_INLINE typename S::V operator()(std::int64_t i, Part... part) const {
    return S::load(x + i, part...);
  }
};
template <class S, class T, bool kFetches>
struct Deviations {
  const T *x, *later;
  typename S::V centre;

  template <class... Part>
  ISOBIT_INLINE simd::Terms<S> operator()(std::int64_t i, Part... part) const {
    fetch<kFetches>(later + i);
    const auto d = S::only(S::sub(S::load(x + i, part...), centre), part...);
    return {d, d};
  }
};
template <class S, class T, bool kFetches>
struct Squares {
  const T *x, *later;

  template <class... Part>
  ISOBIT_INLINE simd::Terms<S> operator()(std::int64_t i, Part... part) const {
    fetch<kFetches>(later + i);
    const auto element = S::load(x + i, part...);
    return {element, element};
  }
};

// Out of line: whoever walks rows shares them, of which each inlines two shapes of a block.
template <class S, class T>
[[gnu::noinline]] typename S::Real sum_of(const Loaded<S, T>& of, std::int64_t cols) {
  return simd::row_sum<S>(cols, of);
}
template <class S, class T, bool kFetches>
[[gnu::noinline]] Moments<typename S::Real> deviations_of(const Deviations<S, T, kFetches>& of,
                                                          std::int64_t cols) {
  const simd::Sums<S> sums = simd::row_sum_and_dot<S>(cols, of);
  return {sums.sum, sums.dot};
}
template <class S, class T, bool kFetches>
[[gnu::noinline]] typename S::Real squares_of(const Squares<S, T, kFetches>& of,
                                              std::int64_t cols) {
  return simd::row_dot<S>(cols, of);
}

}  // namespace detail

// The same, with the usual sums in vectors. `later` is the row to be fetched while this one is
// summed; without kFetches it is not looked at.
template <class S, class T, bool kFetches>
class Row : public SpecifiedRow<S, Elements<T, typename S::Real>> {
  using Specified = SpecifiedRow<S, Elements<T, typename S::Real>>;

 public:
  using V = typename S::V;
  using Real = typename S::Real;
  using Specified::sum;

  ISOBIT_INLINE Row(const T* x, std::int64_t cols, const T* later)
      : Specified(cols, {x}), x_(x), later_(later), cols_(cols) {}

  ISOBIT_INLINE Real sum() const { return detail::sum_of<S, T>({x_}, cols_); }
  ISOBIT_INLINE Moments<Real> deviations(Real mean) const {
    return detail::deviations_of<S, T, kFetches>({x_, later_, S::all(mean)}, cols_);
  }
  ISOBIT_INLINE Real squares() const {
    return detail::squares_of<S, T, kFetches>({x_, later_}, cols_);
  }

 private:
  const T* x_;
  const T* later_;
  std::int64_t cols_;
};

// The statistics of some rows side by side: none waits for the last folds, divisions and roots of
// another. summed(k) is the k-th of them, put(k, statistics) takes what is found of it.
template <class Formula, int kMost, class Summed, class Real, class Put>
ISOBIT_INLINE void statistics_of_rows(int rows, const Summed& summed, std::int64_t cols, Real eps,
                                      const Put& put) {
  Real first[kMost];
  decltype(Formula::second_round(summed(0), Real())) second[kMost];
  for (int k = 0; k < rows; ++k) first[k] = Formula::first_round(summed(k), cols);
  for (int k = 0; k < rows; ++k) second[k] = Formula::second_round(summed(k), first[k]);
  for (int k = 0; k < rows; ++k)
    put(k, Formula::statistics(summed(k), first[k], second[k], cols, eps));
}

// As many short rows as a vector has lanes. Row k begins at x + k * stride; with kFetches, what
// lies `ahead` elements later is fetched while it is summed a second time.
template <class S, class T, bool kFetches>
struct ShortRows {
  using Real = typename S::Real;
  static constexpr int kRows = S::kWidth;
  const T* x;
  std::int64_t stride, cols, ahead;

  SpecifiedRow<S, Elements<T, Real>> row(int k) const { return {cols, {x + k * stride}}; }

  [[gnu::noinline]] void sum(Real* sums) const {
    typename S::V rows[kRows];
    for (int k = 0; k < kRows; ++k) {
      using Loaded = detail::Loaded<S, T>;
      const Loaded of{x + k * stride};
      rows[k] = simd::short_row_sums<S, simd::Want::sum>(cols, simd::Alone<S, Loaded>{of}).a;
    }
    S::template store<simd::Stores::cached>(sums, simd::fold_each<S>(rows));
  }
  [[gnu::noinline]] void deviations(const Real* means, Real* sums, Real* squares) const {
    typename S::V rows[kRows], of_squares[kRows];
    for (int k = 0; k < kRows; ++k) {
      const T* const its = x + k * stride;
      const simd::Terms<S> terms = simd::short_row_sums<S, simd::Want::both>(
          cols, detail::Deviations<S, T, kFetches>{its, its + ahead, S::all(means[k])});
      rows[k] = terms.a;
      of_squares[k] = terms.b;
    }
    S::template store<simd::Stores::cached>(sums, simd::fold_each<S>(rows));
    S::template store<simd::Stores::cached>(squares, simd::fold_each<S>(of_squares));
  }
  [[gnu::noinline]] void squares(Real* squares) const {
    typename S::V rows[kRows];
    for (int k = 0; k < kRows; ++k) {
      const T* const its = x + k * stride;
      rows[k] = simd::short_row_sums<S, simd::Want::dot>(
                    cols, detail::Squares<S, T, kFetches>{its, its + ahead})
                    .b;
    }
    S::template store<simd::Stores::cached>(squares, simd::fold_each<S>(rows));
  }
};

// A row of which the sums are known.
template <class Row>
struct SummedBefore {
  using Real = typename Row::Real;
  const Row& row;
  Real first;
  Moments<Real> second;

  Real sum() const { return first; }
  Real squares() const { return first; }
  Moments<Real> deviations(Real) const { return second; }
  const auto& rare() const { return row.rare(); }
};

// The same of short rows, whose sums are found side by side.
template <class Formula, class S, class T, bool kFetches, class Real, class Put>
ISOBIT_INLINE void statistics_of_short_rows(const ShortRows<S, T, kFetches>& rows, Real eps,
                                            const Put& put) {
  using Known = SummedBefore<decltype(rows.row(0))>;
  constexpr int kRows = S::kWidth;
  alignas(64) Real first[kRows], means[kRows], sums[kRows] = {}, squares[kRows] = {};
  if constexpr (Formula::kCentered) {
    rows.sum(first);
    for (int k = 0; k < kRows; ++k)
      means[k] = Formula::first_round(Known{rows.row(k), first[k], {}}, rows.cols);
    rows.deviations(means, sums, squares);
  } else {
    rows.squares(first);
  }
  for (int k = 0; k < kRows; ++k)
    put(k, statistics_of<Formula>(Known{rows.row(k), first[k], {sums[k], squares[k]}}, rows.cols,
                                  eps));
}

}  // namespace isobit::norms
