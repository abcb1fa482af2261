// SPDX-License-Identifier: Apache-2.0
// The forward rows of a norm in vectors, for every norm's formula; each operator compiles them once
// for each instruction set.
#pragma once

#include <algorithm>

#include "isobit/norms/cpu_kernels.h"
#include "isobit/norms/cpu_row.h"
#include "isobit/simd/collected_rows.h"
#include "isobit/simd/lines.h"

namespace isobit::norms {

// Whether rows are fetched while others are summed, else while others are written.
constexpr bool fetches_far(Schedule schedule) {
  return schedule == Schedule::streaming_far || schedule == Schedule::streaming_long_rows;
}

// So many rows before it is summed a row is fetched: fewer come late, more leave the first cache
// again. From the second cache two are enough, and gain a tenth, up to rows of which six (two at
// hand, two ahead, weight and bias) fill the first. What is fetched into the second should be a
// page. `fetched` takes as many rows at a time as it fetches ahead: two of up to 4 KB, else one.
template <Schedule kSchedule>
ISOBIT_INLINE std::int64_t rows_ahead(std::int64_t row_bytes) {
  switch (kSchedule) {
    case Schedule::cached:              return row_bytes <= 6144 ? 2 : 0;
    case Schedule::fetched:             return row_bytes <= 4096 ? 2 : 1;
    case Schedule::streaming_near:      return 4;
    case Schedule::streaming_far:       return std::max<std::int64_t>(2, 4096 / row_bytes);
    case Schedule::streaming_long_rows: return 1;
  }
}

namespace detail {

using simd::Nan;
using simd::Stores;

// `fetch(i)` may bring a later row nearer while this one is written; kTurn elements, whole lines,
// are written a turn. y may begin anywhere in a line.
template <class S, Stores kStores, Nan kNan, int kTurn, class T, class Normaliser, class Fetch>
ISOBIT_INLINE void write_row(const T* x, T* y, std::int64_t cols,
                             const WeightRow<typename S::Real>& weight,
                             const WeightRow<typename S::Real>& bias, const Normaliser& normalise,
                             const Fetch& fetch) {
  const auto write = [&](auto stores, std::int64_t i, const auto* w, const auto* b,
                         auto... part) ISOBIT_INLINE_LAMBDA {
    fetch(i);
    const typename S::V xhat = normalise(S::load(x + i, part...));
    S::template store<decltype(stores)::value, kNan>(
        y + i, S::fma(xhat, S::load(w, part...), S::load(b, part...)), part...);
  };
  const std::integral_constant<Stores, Stores::cached> cached;
  const auto write_vectors = [&](std::int64_t begin, std::int64_t end) ISOBIT_INLINE_LAMBDA {
    simd::for_each_vector<S, T>(begin, end, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      write(cached, i, weight.at(i), bias.at(i), part...);
    });
  };
  std::int64_t i = 0;
  const auto write_turns = [&](auto turn) ISOBIT_INLINE_LAMBDA {
    constexpr int kElements = decltype(turn)::value;
    for (; i + kElements <= cols; i += kElements) {
      const auto *w = weight.at(i), *b = bias.at(i);
#pragma GCC unroll 16
      for (int j = 0; j < kElements; j += S::kWidth)
        write(std::integral_constant<Stores, kStores>(), i + j, w + j, b + j);
    }
  };
  if constexpr (kStores == Stores::streaming) {
    i = simd::before_lines(y, cols);
    write_vectors(0, i);
  }
  if constexpr (S::kWidth > 1) write_turns(std::integral_constant<int, kTurn>());
  if constexpr (kStores == Stores::streaming)
    write_turns(std::integral_constant<int, 64 / sizeof(T)>());
  write_vectors(i, cols);
}

// The rows that are not usual: scaled, constant or not finite ones, and all where a weight is not
// finite.
template <class Formula, class S, class T>
[[gnu::noinline]] void write_any_row(const T* x, T* y, std::int64_t cols,
                                     const WeightRow<typename S::Real>& weight,
                                     const WeightRow<typename S::Real>& bias,
                                     const Statistics<typename S::Real>& statistics) {
  write_row<S, Stores::cached, Nan::possible, order::kLanes>(
      x, y, cols, weight, bias, typename Formula::template NormaliseAny<S>(statistics),
      [](std::int64_t) {});
}

}  // namespace detail

// Whether no weight and no bias is infinite or NaN. Four sums, since each addition waits for the
// one before.
template <class S>
bool all_finite(const Weights& weights, std::int64_t cols) {
  using Real = typename S::Real;
  constexpr int kSums = 4;
  typename S::V zeros[kSums] = {S::zero(), S::zero(), S::zero(), S::zero()};
  const auto add = [&](int sum, const auto* from, auto... part) ISOBIT_INLINE_LAMBDA {
    zeros[sum] = S::fma(S::load(from, part...), S::zero(), zeros[sum]);  // 0 * infinity is NaN
  };
  const auto walk = [&](const WeightRow<Real>& row) ISOBIT_INLINE_LAMBDA {
    std::int64_t i = 0;
    for (constexpr int kTurn = kSums * S::kWidth; i + kTurn <= cols; i += kTurn)
#pragma GCC unroll 4
      for (int j = 0; j < kSums; ++j) add(j, row.at(i) + j * S::kWidth);
    simd::for_each_vector<S, Real>(i, cols, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      add(0, row.at(i), part...);
    });
  };
  walk({weights.weight, weights.weight_mask});
  walk({weights.bias, weights.bias_mask});
  return S::fold(S::add(S::add(zeros[0], zeros[1]), S::add(zeros[2], zeros[3]))) == 0;
}

template <class Formula, class S, class T, Schedule kSchedule>
void forward_rows(const ForwardProblem& problem, const Weights& weights, std::int64_t begin,
                  std::int64_t end) {
  using Real = typename S::Real;
  using simd::Nan;
  using simd::Stores;
  constexpr bool kFetched = kSchedule == Schedule::fetched;
  constexpr Stores kStores =
      kFetched || kSchedule == Schedule::cached ? Stores::cached : Stores::streaming;
  // Four lines a turn save instructions; where memory is waited for, they cost a fifth.
  constexpr int kTurn = kSchedule == Schedule::streaming_long_rows ? 64 / sizeof(T) : order::kLanes;
  if (begin == end) return;
  const std::int64_t cols = problem.cols;
  const Real eps = static_cast<Real>(problem.eps);
  const WeightRow<Real> weight(weights.weight, weights.weight_mask);
  const WeightRow<Real> bias(weights.bias, weights.bias_mask);
  // From a finite row, finite weights never make a NaN.
  const bool numbers = all_finite<S>(weights, cols);
  const std::int64_t ahead =
      rows_ahead<kSchedule>(std::max<std::int64_t>(1, cols) * std::int64_t{sizeof(T)});
  const auto x_of = [&](std::int64_t row) ISOBIT_INLINE_LAMBDA {
    return row_of<const T>(problem.x, std::min(row, end - 1));
  };
  const auto y_of = [&](std::int64_t row) ISOBIT_INLINE_LAMBDA {
    return row_of<T>(problem.y, std::min(row, end - 1));
  };
  const auto summed = [&](std::int64_t row) ISOBIT_INLINE_LAMBDA {
    return Row<S, T, fetches_far(kSchedule)>(x_of(row), cols, x_of(row + ahead));
  };
  const bool collects = kStores == Stores::streaming &&
                        simd::collects_rows(row_of<T>(problem.y, 0), problem.y.stride, cols);
  simd::CollectedRows collected;
  const auto write = [&](std::int64_t row,
                         const Statistics<Real>& statistics) ISOBIT_INLINE_LAMBDA {
    using Normalise = typename Formula::template Normalise<S>;
    const T* x = x_of(row);
    T* y = y_of(row);
    if (collects) y = collected.place(y, cols);
    const auto fetch = [later = x_of(row + ahead), later_y = y_of(row + ahead)](std::int64_t i)
                           ISOBIT_INLINE_LAMBDA {
                             if constexpr (!fetches_far(kSchedule))
                               simd::fetch_to_first_cache(later + i);
                             if constexpr (kFetched) simd::fetch_to_be_written(later_y + i);
                           };
    if (!statistics.plain || !numbers || !std::isfinite(statistics.rstd)) [[unlikely]]
      detail::write_any_row<Formula, S>(x, y, cols, weight, bias, statistics);
    else if (kStores == Stores::streaming && !collects && simd::streams_lines(y, cols))
      detail::write_row<S, kStores, Nan::absent, kTurn>(x, y, cols, weight, bias,
                                                        Normalise(statistics), fetch);
    else
      detail::write_row<S, Stores::cached, Nan::absent, kTurn>(x, y, cols, weight, bias,
                                                               Normalise(statistics), fetch);
    const auto save = [&](void* to, Real value) ISOBIT_INLINE_LAMBDA {
      if (to != nullptr) static_cast<Real*>(to)[row] = narrow<Real>(value);
    };
    save(problem.mean, statistics.saved_mean);
    save(problem.rstd, statistics.saved_rstd);
  };
  if constexpr (kSchedule == Schedule::streaming_long_rows) {
    for (std::int64_t row = begin; row < end; ++row)
      write(row, statistics_of<Formula>(summed(row), cols, eps));
  } else {
    std::int64_t row = begin;
    if constexpr (S::kWidth > 1) {
      for (; simd::is_short(cols) && row + S::kWidth <= end; row += S::kWidth) {
        const ShortRows<S, T, fetches_far(kSchedule)> rows{x_of(row), problem.x.stride, cols,
                                                           ahead * problem.x.stride};
        statistics_of_short_rows<Formula>(rows, eps,
                                          [&](int k, const Statistics<Real>& found)
                                              ISOBIT_INLINE_LAMBDA { write(row + k, found); });
      }
    }
    constexpr int kTogether = 2;  // more of them leave the first cache
    const std::int64_t together = kFetched ? ahead : kTogether;
    Statistics<Real> statistics[kTogether];
    for (; row < end; row += together) {
      const int rows = static_cast<int>(std::min(together, end - row));
      const auto next = [&](int k) ISOBIT_INLINE_LAMBDA { return summed(row + k); };
      statistics_of_rows<Formula, kTogether>(rows, next, cols, eps,
                                             [&](int k, const Statistics<Real>& found)
                                                 ISOBIT_INLINE_LAMBDA { statistics[k] = found; });
      for (int k = 0; k < rows; ++k) write(row + k, statistics[k]);
    }
  }
  if constexpr (kStores == Stores::streaming) {
    collected.finish();
    simd::fence();
  }
}

template <class Formula>
ForwardKernel ISOBIT_ISA::Kernels<Formula>::forward(DType dtype, Schedule schedule) {
  const auto of = [&]<class S, class T>(S, Type<T>) -> ForwardKernel {
    if constexpr (S::kWidth == 1)  // a single lane has no streaming stores
      return forward_rows<Formula, S, T, Schedule::cached>;
    switch (schedule) {
      case Schedule::cached:         return forward_rows<Formula, S, T, Schedule::cached>;
      case Schedule::fetched:        return forward_rows<Formula, S, T, Schedule::fetched>;
      case Schedule::streaming_far:  return forward_rows<Formula, S, T, Schedule::streaming_far>;
      case Schedule::streaming_near: return forward_rows<Formula, S, T, Schedule::streaming_near>;
      default:                       return forward_rows<Formula, S, T, Schedule::streaming_long_rows>;
    }
  };
  switch (dtype) {
    case DType::f16:  return of(simd::F32{}, Type<f16>{});
    case DType::bf16: return of(simd::F32{}, Type<bf16>{});
    case DType::f64:  return of(simd::F64{}, Type<double>{});
    default:          return of(simd::F32{}, Type<float>{});
  }
}

}  // namespace isobit::norms
