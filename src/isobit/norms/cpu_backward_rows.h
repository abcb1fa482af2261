// SPDX-License-Identifier: Apache-2.0
// The backward rows and column sums of a norm in vectors, for every norm's formula; each operator
// compiles them once for each instruction set.
#pragma once

#include "isobit/norms/cpu_kernels.h"
#include "isobit/norms/cpu_row.h"
#include "isobit/simd/collected_rows.h"
#include "isobit/simd/copies.h"
#include "isobit/simd/lines.h"

namespace isobit::norms {

namespace detail {

using simd::Nan;
using simd::Stores;

// g = grad_y * weight, and x̂, of a row. `fetched(i)` may bring later rows nearer.
template <class S, class T, class Normaliser, class Fetched>
struct GradientTerms {
  const T *x, *grad_y;
  const WeightRow<typename S::Real>& weight;
  const Normaliser& normalise;
  const Fetched& fetched;

  template <class... Part>
  ISOBIT_INLINE simd::Terms<S> operator()(std::int64_t i, Part... part) const {
    fetched(i);
    const auto g = S::mul(S::load(grad_y + i, part...), S::load(weight.at(i), part...));
    return {g, S::only(normalise(S::load(x + i, part...)), part...)};
  }
};

// The row means of g and of g * x̂.
template <class Formula, class S, class T, class Normaliser, class Fetched>
ISOBIT_INLINE void gradient_means(const GradientTerms<S, T, Normaliser, Fetched>& of,
                                  std::int64_t cols, RowTerms<typename S::Real>& terms) {
  using Real = typename S::Real;
  const Real n = static_cast<Real>(cols);
  if constexpr (Formula::kCentered) {
    const simd::Sums<S> sums = simd::row_sum_and_dot<S>(cols, of);
    terms.mean_g = sums.sum / n;
    terms.mean_gx = sums.dot / n;
  } else {
    terms.mean_gx = simd::row_dot<S>(cols, of) / n;
  }
}

// The same of as many short rows as a vector has lanes. of(k) is that of the k-th.
template <class Formula, class S, class Of>
ISOBIT_INLINE void gradient_means_of_short_rows(const Of& of, std::int64_t cols,
                                                RowTerms<typename S::Real>* terms) {
  using Real = typename S::Real;
  constexpr int kRows = S::kWidth;
  typename S::V sums[kRows], dots[kRows];
  for (int k = 0; k < kRows; ++k) {
    const simd::Terms<S> row = of(k);
    sums[k] = row.a;
    dots[k] = row.b;
  }
  alignas(64) Real means[kRows];
  const auto n = S::all(static_cast<Real>(cols));
  if constexpr (Formula::kCentered) {
    S::template store<Stores::cached>(means, S::div(simd::fold_each<S>(sums), n));
    for (int k = 0; k < kRows; ++k) terms[k].mean_g = means[k];
  }
  S::template store<Stores::cached>(means, S::div(simd::fold_each<S>(dots), n));
  for (int k = 0; k < kRows; ++k) terms[k].mean_gx = means[k];
}

// The same of rows that are not usual ones, by way of memory.
template <class Formula, class S, class T>
[[gnu::noinline]] void any_gradient_means(const T* x, const T* grad_y,
                                          const WeightRow<typename S::Real>& weight,
                                          std::int64_t cols, RowTerms<typename S::Real>& terms) {
  using Real = typename S::Real;
  const typename Formula::template NormaliseAny<S> normalise(terms.statistics);
  alignas(64) Real g[order::kBlock], xhat[order::kBlock];
  order::PairTree<Real> sums, dots;
  for (std::int64_t begin = 0; begin < cols; begin += order::kBlock) {
    const std::int64_t end = std::min<std::int64_t>(cols, begin + order::kBlock);
    simd::for_each_vector<S, T>(begin, end, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      const auto product = S::mul(S::load(grad_y + i, part...), S::load(weight.at(i), part...));
      S::template store<Stores::cached>(g + i - begin, product, part...);
      S::template store<Stores::cached>(xhat + i - begin, normalise(S::load(x + i, part...)),
                                        part...);
    });
    const simd::Sums<S> of = simd::row_sum_and_dot<S>(end - begin, simd::StoredTerms<S>{g, xhat});
    sums.push(of.sum);
    dots.push(of.dot);
  }
  const Real n = static_cast<Real>(cols);
  if constexpr (Formula::kCentered) terms.mean_g = sums.total() / n;
  terms.mean_gx = dots.total() / n;
}

// The terms of so many rows are found side by side, as long as x of all of them stays in the first
// cache between the rounds.
inline constexpr int kMostTerms = 4;
ISOBIT_INLINE int rows_of_terms(std::size_t row_bytes) {
  return row_bytes <= 4096 ? kMostTerms : row_bytes <= 8192 ? 2 : 1;
}

// In which round the rows that are swept next are fetched, so that memory has work in all of them:
// x while statistics are found, or in the sweep where they are known; grad_y with the means, but in
// the sweep for known statistics of rows that leave the first cache: there rounds wait for the
// second one as it is. A sweep without sums may be a pass of its own, and fetches both.
struct Fetches {
  bool x_in_sweep, grad_y_in_sweep;

  ISOBIT_INLINE Fetches(const BackwardProblem& problem, std::size_t element)
      : x_in_sweep(problem.found != nullptr || problem.rstd != nullptr),
        grad_y_in_sweep(x_in_sweep && rows_of_terms(problem.cols * element) == 1) {}
};

template <class Formula, class S, class T, bool kFetches>
void row_terms(const BackwardProblem& problem, const Weights& weights, std::int64_t begin,
               std::int64_t end, void* to) {
  using Real = typename S::Real;
  using Normalise = typename Formula::template Normalise<S>;
  const std::int64_t cols = problem.cols;
  const WeightRow<Real> weight(weights.weight, weights.weight_mask);
  auto* terms = static_cast<RowTerms<Real>*>(to);
  const auto given = [](const void* statistics, std::int64_t row) {
    return statistics != nullptr ? static_cast<const Real*>(statistics)[row] : Real(0);
  };
  const int together = rows_of_terms(cols * sizeof(T));
  const Fetches fetches(problem, sizeof(T));
  const auto summed = [&](std::int64_t row) ISOBIT_INLINE_LAMBDA {
    const T* x = row_of<const T>(problem.x, row);
    return Row<S, T, kFetches>(x, cols, x + kSweptRows * problem.x.stride);
  };
  // body(GradientTerms) of a row.
  const auto with_gradient = [&](std::int64_t row, const Statistics<Real>& statistics,
                                 const auto& body) ISOBIT_INLINE_LAMBDA {
    const T* grad_y = row_of<const T>(problem.grad_y, row);
    const auto fetched = [&](std::int64_t i) ISOBIT_INLINE_LAMBDA {
      if (kFetches && !fetches.grad_y_in_sweep)
        simd::fetch_to_second_cache(grad_y + kSweptRows * problem.grad_y.stride + i);
    };
    const Normalise normalise(statistics);
    return body(GradientTerms<S, T, Normalise, decltype(fetched)>{
        row_of<const T>(problem.x, row), grad_y, weight, normalise, fetched});
  };
  const auto put_means = [&](std::int64_t row, RowTerms<Real>& to) ISOBIT_INLINE_LAMBDA {
    if (to.statistics.plain) [[likely]]
      with_gradient(row, to.statistics, [&](const auto& of) ISOBIT_INLINE_LAMBDA {
        gradient_means<Formula>(of, cols, to);
      });
    else
      any_gradient_means<Formula, S>(row_of<const T>(problem.x, row),
                                     row_of<const T>(problem.grad_y, row), weight, cols, to);
  };
  const auto eps = static_cast<Real>(problem.eps);
  const bool are_known = problem.found != nullptr || problem.rstd != nullptr;
  const auto put_known = [&](std::int64_t row, int rows) ISOBIT_INLINE_LAMBDA {
    for (int k = 0; k < rows; ++k) {
      if (problem.found != nullptr)
        terms[k].statistics = static_cast<const RowTerms<Real>*>(problem.found)[row + k].statistics;
      else
        put_given_statistics(given(problem.mean, row + k), given(problem.rstd, row + k),
                             terms[k].statistics);
      terms[k].mean_g = terms[k].mean_gx = 0;
    }
  };
  const auto put = [&](int k, const Statistics<Real>& found)
                       ISOBIT_INLINE_LAMBDA { terms[k] = {found, 0, 0}; };
  std::int64_t row = begin;
  if constexpr (S::kWidth > 1) {
    constexpr int kRows = S::kWidth;
    for (; simd::is_short(cols) && row + kRows <= end; row += kRows, terms += kRows) {
      if (are_known)
        put_known(row, kRows);
      else
        statistics_of_short_rows<Formula>(
            ShortRows<S, T, kFetches>{row_of<const T>(problem.x, row), problem.x.stride, cols,
                                      kSweptRows * problem.x.stride},
            eps, put);
      bool plain = true;
      for (int k = 0; k < kRows; ++k) plain = plain && terms[k].statistics.plain;
      if (!problem.wants_rows()) continue;
      if (plain) [[likely]]
        gradient_means_of_short_rows<Formula, S>(
            [&](int k) ISOBIT_INLINE_LAMBDA {
              constexpr simd::Want kWant = Formula::kCentered ? simd::Want::both : simd::Want::dot;
              return with_gradient(row + k, terms[k].statistics,
                                   [&](const auto& of) ISOBIT_INLINE_LAMBDA {
                                     return simd::short_row_sums<S, kWant>(cols, of);
                                   });
            },
            cols, terms);
      else
        for (int k = 0; k < kRows; ++k) put_means(row + k, terms[k]);
    }
  }
  for (; row < end; row += together, terms += together) {
    const int rows = static_cast<int>(std::min<std::int64_t>(together, end - row));
    if (are_known)
      put_known(row, rows);
    else
      statistics_of_rows<Formula, kMostTerms>(
          rows, [&](int k) ISOBIT_INLINE_LAMBDA { return summed(row + k); }, cols, eps, put);
    if (problem.wants_rows())
      for (int k = 0; k < rows; ++k) put_means(row + k, terms[k]);
  }
}

// What a sweep does with its rows. Their gradients leave the caches if it `streams`: with its own
// stores, or from a buffer.
template <class FormulaOf, class SOf, class TOf, bool kGradX, bool kSums,
          Stores kStores = Stores::cached, Nan kNan = Nan::absent,
          bool kStreams = kStores == Stores::streaming>
struct Sweep {
  using Formula = FormulaOf;
  using S = SOf;
  using T = TOf;
  using Real = typename S::Real;
  static constexpr bool grad_x = kGradX, sums = kSums, streams = kStreams;
  static constexpr Stores stores = kStores;
  static constexpr Nan nan = kNan;
  template <Stores kOther, Nan kOtherNan>
  using With = Sweep<Formula, S, T, kGradX, kSums, kOther, kOtherNan>;
  using IntoBuffer = Sweep<Formula, S, T, kGradX, kSums, Stores::cached, kNan, kStreams>;
};

// So many rows are swept side by side. The numbers of more would not fit the registers, and rows
// that lie a multiple of 4096 bytes apart would push each other out of the first cache.
inline constexpr int kAbreast = 2;

// kRows rows side by side: the sums of a column are loaded and stored once for all of them.
// grad_x_of(k) is where the gradient of the k-th goes, from the tile's first column on.
template <class How, template <class> class Normaliser, int kRows, class GradX>
ISOBIT_INLINE void sweep_rows(const BackwardProblem& problem,
                              const WeightRow<typename How::Real>& weights, std::int64_t row,
                              const Tile& tile, const RowTerms<typename How::Real>* terms,
                              const ColumnSums& sums, const GradX& grad_x_of) {
  using S = typename How::S;
  using T = typename How::T;
  using V = typename S::V;
  struct Side {
    const T *x, *grad_y;
    T* grad_x;
    Normaliser<S> normalise;
    V mean_g, mean_gx;
  };
  const auto side = [&](int k) ISOBIT_INLINE_LAMBDA {
    return Side{row_of<const T>(problem.x, row + k),
                row_of<const T>(problem.grad_y, row + k),
                grad_x_of(k),
                Normaliser<S>(terms[k].statistics),
                S::all(terms[k].mean_g),
                S::all(terms[k].mean_gx)};
  };
  const Fetches fetches(problem, sizeof(T));
  auto* weight_sums = static_cast<typename How::Real*>(sums.weight);
  auto* bias_sums = static_cast<typename How::Real*>(sums.bias);
  // Vectors of a line of the caches, which follow each other: streaming stores to several rows in
  // turn would leave lines half-written. (4096 x 4096 f32 took 1.8 times as long [AMD EPYC 25/1].)
  constexpr int kLine =
      How::streams && S::kWidth > 1 ? static_cast<int>(64 / sizeof(T)) / S::kWidth : 1;
  const auto sweep = [&](const auto&... sides) ISOBIT_INLINE_LAMBDA {
    const auto vectors = [&](auto count, std::int64_t first, auto... part) ISOBIT_INLINE_LAMBDA {
      constexpr int kCount = decltype(count)::value;
      V weight_sum[kCount], bias_sum[kCount], weight[kCount];
      const std::int64_t column = first - tile.first_col;
#pragma GCC unroll 4
      for (int v = 0; v < kCount; ++v) {
        weight_sum[v] = bias_sum[v] = weight[v] = S::zero();
        if constexpr (How::sums)
          if (!sums.fresh) {
            weight_sum[v] = S::load(weight_sums + column + v * S::kWidth, part...);
            bias_sum[v] = S::load(bias_sums + column + v * S::kWidth, part...);
          }
        if constexpr (How::grad_x) weight[v] = S::load(weights.at(first + v * S::kWidth), part...);
      }
      const auto step = [&](const Side& side, std::int64_t i, int v,
                            V& grad_x) ISOBIT_INLINE_LAMBDA {
        const V grad_y = S::load(side.grad_y + i, part...);
        const V xhat = side.normalise(S::load(side.x + i, part...));
        if constexpr (How::streams && sizeof...(part) == 0) {
          if (!How::sums || fetches.x_in_sweep)
            simd::fetch_to_second_cache(side.x + kSweptRows * problem.x.stride + i);
          if (!How::sums || fetches.grad_y_in_sweep)
            simd::fetch_to_second_cache(side.grad_y + kSweptRows * problem.grad_y.stride + i);
        }
        if constexpr (How::grad_x)
          grad_x =
              side.normalise.gradient(S::mul(grad_y, weight[v]), xhat, side.mean_g, side.mean_gx);
        if constexpr (How::sums) {
          weight_sum[v] = S::fma(grad_y, xhat, weight_sum[v]);
          bias_sum[v] = S::add(bias_sum[v], grad_y);
        }
      };
      // All rows are read before one is written: where they lie a multiple of 4096 bytes apart, a
      // load waits for a store to the row before. (It took 2.4 times as long.)
      V grad_x[kRows][kCount];
      int row_now = 0;
      const auto read = [&](const Side& side) ISOBIT_INLINE_LAMBDA {
#pragma GCC unroll 4
        for (int v = 0; v < kCount; ++v) step(side, first + v * S::kWidth, v, grad_x[row_now][v]);
        ++row_now;
      };
      (read(sides), ...);
      row_now = 0;
      const auto write = [&](const Side& side) ISOBIT_INLINE_LAMBDA {
#pragma GCC unroll 4
        for (int v = 0; v < kCount; ++v)
          S::template store<How::stores, How::nan>(side.grad_x + column + v * S::kWidth,
                                                   grad_x[row_now][v], part...);
        ++row_now;
      };
      if constexpr (How::grad_x) (write(sides), ...);
      if constexpr (How::sums)
#pragma GCC unroll 4
        for (int v = 0; v < kCount; ++v) {
          S::template store<Stores::cached, Nan::absent>(weight_sums + column + v * S::kWidth,
                                                         weight_sum[v], part...);
          S::template store<Stores::cached, Nan::absent>(bias_sums + column + v * S::kWidth,
                                                         bias_sum[v], part...);
        }
    };
    std::int64_t i = tile.first_col;
    if constexpr (kLine > 1)
      for (; i + kLine * S::kWidth <= tile.last_col; i += kLine * S::kWidth)
        vectors(std::integral_constant<int, kLine>(), i);
    simd::for_each_vector<S, T>(i, tile.last_col,
                                [&](std::int64_t at, auto... part) ISOBIT_INLINE_LAMBDA {
                                  vectors(std::integral_constant<int, 1>(), at, part...);
                                });
  };
  if constexpr (kRows == kAbreast)
    sweep(side(0), side(1));
  else
    sweep(side(0));
}

// The same, each gradient in its place.
template <class How, template <class> class Normaliser, int kRows>
ISOBIT_INLINE void sweep_in_place(const BackwardProblem& problem,
                                  const WeightRow<typename How::Real>& weights, std::int64_t row,
                                  const Tile& tile, const RowTerms<typename How::Real>* terms,
                                  const ColumnSums& sums) {
  using T = typename How::T;
  sweep_rows<How, Normaliser, kRows>(problem, weights, row, tile, terms, sums,
                                     [&](int k) ISOBIT_INLINE_LAMBDA -> T* {
                                       if constexpr (How::grad_x)
                                         return row_of<T>(problem.grad_x, row + k) + tile.first_col;
                                       else
                                         return nullptr;
                                     });
}

// The same of rows that do not begin lines of memory: pieces of both are swept into a buffer, and
// whole lines of it streamed. By way of the caches, rows of 1000 f32 took 1.4 times as long on a
// Zen 3. Out of line, so that short rows do not pay for its stack.
template <class How>
[[gnu::noinline]] void sweep_by_buffer(const BackwardProblem& problem,
                                       const WeightRow<typename How::Real>& weights,
                                       std::int64_t row, const Tile& tile,
                                       const RowTerms<typename How::Real>* terms, ColumnSums sums) {
  using T = typename How::T;
  using Real = typename How::Real;
  constexpr std::int64_t kPiece = 2048 / sizeof(T);
  alignas(64) T buffer[kAbreast][kPiece];
  for (std::int64_t first = tile.first_col; first < tile.last_col; first += kPiece) {
    const std::int64_t count = std::min(kPiece, tile.last_col - first);
    const Tile piece{tile.first_row, tile.last_row, first, first + count};
    sweep_rows<typename How::IntoBuffer, How::Formula::template Normalise, kAbreast>(
        problem, weights, row, piece, terms, sums,
        [&](int k) ISOBIT_INLINE_LAMBDA { return buffer[k]; });
    for (int k = 0; k < kAbreast; ++k)
      simd::stream_bytes(reinterpret_cast<const std::byte*>(buffer[k]),
                         reinterpret_cast<std::byte*>(row_of<T>(problem.grad_x, row + k) + first),
                         count * std::int64_t{sizeof(T)});
    if constexpr (How::sums) {
      sums.weight = static_cast<Real*>(sums.weight) + count;
      sums.bias = static_cast<Real*>(sums.bias) + count;
    }
  }
}

// The rows that are not usual: scaled, constant or not finite ones, or with a gradient that is not
// finite.
template <class How>
[[gnu::noinline]] void sweep_any_row(const BackwardProblem& problem,
                                     const WeightRow<typename How::Real>& weights, std::int64_t row,
                                     const Tile& tile, const RowTerms<typename How::Real>* terms,
                                     const ColumnSums& sums) {
  using Any = typename How::template With<Stores::cached, Nan::possible>;
  sweep_in_place<Any, How::Formula::template NormaliseAny, 1>(problem, weights, row, tile, terms,
                                                              sums);
}

// A usual row: all its gradients are numbers, since a mean over them is.
template <class Real>
ISOBIT_INLINE bool usual(const RowTerms<Real>& terms) {
  return terms.statistics.plain && std::isfinite(terms.statistics.mean) &&
         std::isfinite(terms.statistics.rstd) && terms.statistics.rstd != 0 &&
         std::isfinite(terms.mean_g) && std::isfinite(terms.mean_gx);
}

// kAbreast usual rows, the lines of their gradients past the caches if that is asked for.
template <class How>
ISOBIT_INLINE void sweep_usual_rows(const BackwardProblem& problem,
                                    const WeightRow<typename How::Real>& weights, std::int64_t row,
                                    const Tile& tile, const RowTerms<typename How::Real>* terms,
                                    const ColumnSums& sums, simd::CollectedRows* collected) {
  using T = typename How::T;
  if constexpr (How::streams) {
    if (collected != nullptr) {
      const std::int64_t cols = problem.cols;
      T* const rows = collected->place(row_of<T>(problem.grad_x, row), kAbreast * cols);
      return sweep_rows<typename How::IntoBuffer, How::Formula::template Normalise, kAbreast>(
          problem, weights, row, tile, terms, sums,
          [&](int k) ISOBIT_INLINE_LAMBDA { return rows + k * cols; });
    }
    bool begin_lines = true, have_lines = true;
    for (int k = 0; k < kAbreast; ++k) {
      const T* const grad_x = row_of<T>(problem.grad_x, row + k) + tile.first_col;
      begin_lines = begin_lines && simd::streamable(grad_x);
      have_lines = have_lines && simd::streams_lines(grad_x, tile.last_col - tile.first_col);
    }
    if (begin_lines)
      return sweep_in_place<How, How::Formula::template Normalise, kAbreast>(problem, weights, row,
                                                                             tile, terms, sums);
    if (have_lines) return sweep_by_buffer<How>(problem, weights, row, tile, terms, sums);
  }
  using Cached = typename How::template With<Stores::cached, Nan::absent>;
  sweep_in_place<Cached, How::Formula::template Normalise, kAbreast>(problem, weights, row, tile,
                                                                     terms, sums);
}

template <class How>
void sweep(const BackwardProblem& problem, const Weights& weights, const Tile& tile,
           const void* tile_terms, ColumnSums sums) {
  using Real = typename How::Real;
  using Cached = typename How::template With<Stores::cached, Nan::absent>;
  const WeightRow<Real> weight(weights.weight, weights.weight_mask);
  const auto* terms = static_cast<const RowTerms<Real>*>(tile_terms);
  simd::CollectedRows rows;
  simd::CollectedRows* collected = nullptr;
  if constexpr (How::streams)  // rows that follow each other, of all columns
    if (simd::collects_rows(row_of<typename How::T>(problem.grad_x, tile.first_row),
                            problem.grad_x.stride, tile.last_col - tile.first_col))
      collected = &rows;
  for (std::int64_t row = tile.first_row; row < tile.last_row;) {
    bool together = row + kAbreast <= tile.last_row;
    for (int k = 0; together && k < kAbreast; ++k) together = usual(terms[k]);
    if (together)
      sweep_usual_rows<How>(problem, weight, row, tile, terms, sums, collected);
    else if (usual(*terms))
      sweep_in_place<Cached, How::Formula::template Normalise, 1>(problem, weight, row, tile, terms,
                                                                  sums);
    else
      sweep_any_row<Cached>(problem, weight, row, tile, terms, sums);
    sums.fresh = false;
    row += together ? kAbreast : 1;
    terms += together ? kAbreast : 1;
  }
  if (collected != nullptr) collected->finish();
}

template <class Formula, class S, class T, Stores kStores>
BackwardKernels kernels_of() {
  return {row_terms<Formula, S, T, (kStores == Stores::streaming)>,
          [](const BackwardProblem& problem, const Weights& weights, const Tile& tile,
             const void* terms) {
            sweep<Sweep<Formula, S, T, true, false, kStores>>(problem, weights, tile, terms, {});
          },
          [](const BackwardProblem& problem, const Tile& tile, const void* terms,
             const ColumnSums& sums) {
            sweep<Sweep<Formula, S, T, false, true>>(problem, {}, tile, terms, sums);
          },
          [](const BackwardProblem& problem, const Weights& weights, const Tile& tile,
             const void* terms, const ColumnSums& sums) {
            sweep<Sweep<Formula, S, T, true, true, kStores>>(problem, weights, tile, terms, sums);
          }};
}

}  // namespace detail

template <class Formula>
BackwardKernels ISOBIT_ISA::Kernels<Formula>::backward(DType dtype, bool streaming) {
  const auto of = [&]<class S, class T>(S, Type<T>) {
    if constexpr (S::kWidth == 1)  // a single lane has no streaming stores
      return detail::kernels_of<Formula, S, T, simd::Stores::cached>();
    else
      return streaming ? detail::kernels_of<Formula, S, T, simd::Stores::streaming>()
                       : detail::kernels_of<Formula, S, T, simd::Stores::cached>();
  };
  switch (dtype) {
    case DType::f16:  return of(simd::F32{}, Type<f16>{});
    case DType::bf16: return of(simd::F32{}, Type<bf16>{});
    case DType::f64:  return of(simd::F64{}, Type<double>{});
    default:          return of(simd::F32{}, Type<float>{});
  }
}

}  // namespace isobit::norms
