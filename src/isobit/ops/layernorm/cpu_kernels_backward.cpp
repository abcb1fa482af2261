// SPDX-License-Identifier: Apache-2.0
// The backward rows and column sums of the simd variants, compiled once for each instruction set.
#include <type_traits>

#include "isobit/ops/layernorm/cpu_kernels.h"
#include "isobit/ops/layernorm/cpu_row.h"
#include "isobit/simd/map.h"

namespace isobit::layernorm::ISOBIT_ISA {
namespace {

using S = simd::F32;
using V = S::V;
using simd::Nan;
using simd::Stores;

// The pointers of one call, with their types.
template <class T, class W>
struct Arrays {
  const T *x, *grad_y;
  T* grad_x;
  std::int64_t x_stride, grad_y_stride, grad_x_stride;
  Neutral<W> neutral;
  Weight<W> weight;

  ISOBIT_INLINE explicit Arrays(const BackwardProblem& problem)
      : x(reinterpret_cast<const T*>(problem.x.data)),
        grad_y(reinterpret_cast<const T*>(problem.grad_y.data)),
        grad_x(reinterpret_cast<T*>(problem.grad_x.data)),
        x_stride(problem.x.stride),
        grad_y_stride(problem.grad_y.stride),
        grad_x_stride(problem.grad_x.stride),
        weight(problem.weight, neutral.ones) {}
};

// The row means of g and of g * x̂, where g = grad_y * weight.
template <class T, class W, class Normaliser>
ISOBIT_INLINE void gradient_means(const T* x, const T* grad_y, const Weight<W>& weight,
                                  std::int64_t cols, const Normaliser& normalise, RowTerms& terms) {
  const auto get = [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    const V g = S::mul(S::load(grad_y + i, part...), S::load(weight.at(i), part...));
    return simd::Terms<S>{g, S::only(normalise(S::load(x + i, part...)), part...)};
  };
  const simd::Sums sums = simd::row_sum_and_dot<S>(cols, get);
  const float n = static_cast<float>(cols);
  terms.mean_g = sums.sum / n;
  terms.mean_gx = sums.dot / n;
}

template <class T, class W>
[[gnu::noinline]] void any_gradient_means(const T* x, const T* grad_y, const Weight<W>& weight,
                                          std::int64_t cols, RowTerms& terms) {
  gradient_means(x, grad_y, weight, cols, NormaliseAny<S>(terms.statistics), terms);
}

template <class T, class W>
void terms(const BackwardProblem& problem, std::int64_t begin, std::int64_t end, RowTerms* terms) {
  const Arrays<T, W> arrays(problem);
  for (std::int64_t row = begin; row < end; ++row, ++terms) {
    const T* x = arrays.x + row * arrays.x_stride;
    const T* grad_y = arrays.grad_y + row * arrays.grad_y_stride;
    terms->statistics = problem.mean != nullptr
                            ? given_statistics(problem.mean[row], problem.rstd[row])
                            : layernorm::statistics(Row<S, T, false>(x, problem.cols, x),
                                                    problem.cols, problem.eps);
    terms->mean_g = terms->mean_gx = 0;
    if (!problem.wants_grad_x) continue;
    if (terms->statistics.plain)
      gradient_means(x, grad_y, arrays.weight, problem.cols, Normalise<S>(terms->statistics),
                     *terms);
    else
      any_gradient_means(x, grad_y, arrays.weight, problem.cols, *terms);
  }
}

// What a sweep does with its rows.
template <bool kGradX, bool kSums, Stores kStores = Stores::cached, Nan kNan = Nan::absent>
struct Sweep {
  static constexpr bool grad_x = kGradX, sums = kSums;
  static constexpr Stores stores = kStores;
  static constexpr Nan nan = kNan;
};

// So many rows share one load and store of the column sums.
constexpr int kTogether = 4;

struct ColumnSums {
  float *weight, *bias;
  bool fresh;
};

// kRows rows side by side: the sums of a column are loaded and stored once for all of them.
template <class How, template <class> class Normaliser, int kRows, class T, class W>
ISOBIT_INLINE void sweep_rows(const Arrays<T, W>& arrays, std::int64_t row, const Tile& tile,
                              const RowTerms* terms, const ColumnSums& sums) {
  struct Side {
    const T *x, *grad_y;
    T* grad_x;
    Normaliser<S> normalise;
    V mean_g, mean_gx;
  };
  const auto side = [&](int k) ISOBIT_INLINE_LAMBDA {
    return Side{arrays.x + (row + k) * arrays.x_stride,
                arrays.grad_y + (row + k) * arrays.grad_y_stride,
                How::grad_x ? arrays.grad_x + (row + k) * arrays.grad_x_stride : nullptr,
                Normaliser<S>(terms[k].statistics),
                S::all(terms[k].mean_g),
                S::all(terms[k].mean_gx)};
  };
  const auto sweep = [&](const auto&... sides) ISOBIT_INLINE_LAMBDA {
    for_each_vector<S, T>(
        tile.first_col, tile.last_col, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
          V weight_sum = S::zero(), bias_sum = S::zero();
          const std::int64_t column = i - tile.first_col;
          if constexpr (How::sums)
            if (!sums.fresh) {
              weight_sum = S::load(sums.weight + column, part...);
              bias_sum = S::load(sums.bias + column, part...);
            }
          const V weight = S::load(arrays.weight.at(i), part...);
          const auto step = [&](const Side& side) ISOBIT_INLINE_LAMBDA {
            const V grad_y = S::load(side.grad_y + i, part...);
            const V xhat = side.normalise(S::load(side.x + i, part...));
            if constexpr (How::stores == Stores::streaming && sizeof...(part) == 0) {
              prefetch(side.x + kRows * arrays.x_stride + i);
              prefetch(side.grad_y + kRows * arrays.grad_y_stride + i);
            }
            if constexpr (How::grad_x) {
              const V value =
                  side.normalise.gradient(S::mul(grad_y, weight), xhat, side.mean_g, side.mean_gx);
              S::store<How::stores, How::nan>(side.grad_x + i, value, part...);
            }
            if constexpr (How::sums) {
              weight_sum = S::fma(grad_y, xhat, weight_sum);
              bias_sum = S::add(bias_sum, grad_y);
            }
          };
          (step(sides), ...);
          if constexpr (How::sums) {
            S::store<Stores::cached, Nan::absent>(sums.weight + column, weight_sum, part...);
            S::store<Stores::cached, Nan::absent>(sums.bias + column, bias_sum, part...);
          }
        });
  };
  if constexpr (kRows == kTogether)
    sweep(side(0), side(1), side(2), side(3));
  else
    sweep(side(0));
}

// The rows that are not usual: scaled, constant or not finite ones, or with a gradient that is not
// finite.
template <class How, class T, class W>
[[gnu::noinline]] void sweep_any_row(const Arrays<T, W>& arrays, std::int64_t row, const Tile& tile,
                                     const RowTerms* terms, const ColumnSums& sums) {
  using Any = Sweep<How::grad_x, How::sums, Stores::cached, Nan::possible>;
  sweep_rows<Any, NormaliseAny, 1>(arrays, row, tile, terms, sums);
}

// A usual row: all its gradients are numbers, since a mean over them is.
ISOBIT_INLINE bool usual(const RowTerms& terms) {
  return terms.statistics.plain && std::isfinite(terms.statistics.mean) &&
         std::isfinite(terms.statistics.rstd) && terms.statistics.rstd != 0 &&
         std::isfinite(terms.mean_g) && std::isfinite(terms.mean_gx);
}

template <class How, class T, class W>
void sweep(const BackwardProblem& problem, const Tile& tile, const RowTerms* terms,
           ColumnSums sums) {
  using Cached = Sweep<How::grad_x, How::sums>;
  const Arrays<T, W> arrays(problem);
  for (std::int64_t row = tile.first_row; row < tile.last_row;) {
    bool together = row + kTogether <= tile.last_row, streamable = How::stores == Stores::streaming;
    for (int k = 0; together && k < kTogether; ++k) {
      together = usual(terms[k]);
      streamable &=
          simd::streamable(arrays.grad_x + (row + k) * arrays.grad_x_stride + tile.first_col);
    }
    if (together && streamable)
      sweep_rows<How, Normalise, kTogether>(arrays, row, tile, terms, sums);
    else if (together)
      sweep_rows<Cached, Normalise, kTogether>(arrays, row, tile, terms, sums);
    else if (usual(*terms))
      sweep_rows<Cached, Normalise, 1>(arrays, row, tile, terms, sums);
    else
      sweep_any_row<Cached>(arrays, row, tile, terms, sums);
    sums.fresh = false;
    row += together ? kTogether : 1;
    terms += together ? kTogether : 1;
  }
  if constexpr (How::grad_x && How::stores == Stores::streaming) simd::fence();
}

void add(float* into, const float* from, std::int64_t count) {
  for_each_vector<S, float>(0, count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    const V sum = S::add(S::load(into + i, part...), S::load(from + i, part...));
    S::store<Stores::cached, Nan::absent>(into + i, sum,
                                          part...);  // NaN is made canonical by finish
  });
}

void finish(DType weight_dtype, void* to, const float* sums, std::int64_t count) {
  const auto write = [&](auto* typed) ISOBIT_INLINE_LAMBDA {
    for_each_vector<S, float>(0, count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      S::store(typed + i, S::add(S::zero(), S::load(sums + i, part...)), part...);
    });
  };
  if (weight_dtype == DType::f32)
    write(static_cast<float*>(to));
  else
    write(static_cast<bf16*>(to));
}

template <class T, class W, Stores kStores>
BackwardKernels kernels() {
  return {terms<T, W>,
          [](const BackwardProblem& problem, const Tile& tile, const RowTerms* terms) {
            sweep<Sweep<true, false, kStores>, T, W>(problem, tile, terms, {});
          },
          [](const BackwardProblem& problem, const Tile& tile, const RowTerms* terms, float* weight,
             float* bias, bool fresh) {
            sweep<Sweep<false, true>, T, W>(problem, tile, terms, {weight, bias, fresh});
          },
          [](const BackwardProblem& problem, const Tile& tile, const RowTerms* terms, float* weight,
             float* bias, bool fresh) {
            sweep<Sweep<true, true, kStores>, T, W>(problem, tile, terms, {weight, bias, fresh});
          },
          add,
          finish};
}

}  // namespace

BackwardKernels backward_kernels(DType x, DType weight, bool streaming) {
  return visit_types(x, weight, [&](auto x_type, auto weight_type) ISOBIT_INLINE_LAMBDA {
    using T = typename decltype(x_type)::type;
    using W = typename decltype(weight_type)::type;
    return streaming ? kernels<T, W, Stores::streaming>() : kernels<T, W, Stores::cached>();
  });
}

}  // namespace isobit::layernorm::ISOBIT_ISA
