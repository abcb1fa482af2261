// SPDX-License-Identifier: Apache-2.0
// The forward rows of the simd variant, compiled once for each instruction set.
#include <algorithm>

#include "isobit/ops/layernorm/cpu_kernels.h"
#include "isobit/ops/layernorm/cpu_row.h"
#include "isobit/simd/map.h"

namespace isobit::layernorm::ISOBIT_ISA {
namespace {

using S = simd::F32;
using simd::Nan;
using simd::Stores;

template <Stores kStores, Nan kNan, class T, class W, class Normaliser>
ISOBIT_INLINE void write_row(const T* x, T* y, std::int64_t cols, const Weight<W>& weight,
                             const Weight<W>& bias, const Normaliser& normalise) {
  for_each_vector<S, T>(0, cols, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    const S::V xhat = normalise(S::load(x + i, part...));
    const S::V value = S::fma(xhat, S::load(weight.at(i), part...), S::load(bias.at(i), part...));
    S::store<kStores, kNan>(y + i, value, part...);
  });
}

// The rows that are not usual: scaled, constant or not finite ones, and all where a weight is not
// finite.
template <class T, class W>
[[gnu::noinline]] void write_any_row(const T* x, T* y, std::int64_t cols, const Weight<W>& weight,
                                     const Weight<W>& bias, const Statistics& statistics) {
  write_row<Stores::cached, Nan::possible>(x, y, cols, weight, bias, NormaliseAny<S>(statistics));
}

template <class W>
bool all_finite(const Weight<W>& weight, std::int64_t cols) {
  S::V zeros = S::zero();  // a product with anything but a number is NaN
  for_each_vector<S, W>(0, cols, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    zeros = S::fma(S::load(weight.at(i), part...), S::zero(), zeros);
  });
  return S::fold(zeros) == 0;
}

template <class T, class W, Stores kStores>
void forward(const ForwardProblem& problem, std::int64_t begin, std::int64_t end) {
  const Neutral<W> neutral;
  const Weight<W> weight(problem.weight, neutral.ones), bias(problem.bias, neutral.minus_zeros);
  // From a finite row, finite weights never make a NaN.
  const bool numbers = all_finite(weight, problem.cols) && all_finite(bias, problem.cols);
  const auto x_of = [&](std::int64_t row) ISOBIT_INLINE_LAMBDA {
    return reinterpret_cast<const T*>(problem.x.data) + row * problem.x.stride;
  };
  const auto row_of = [&](std::int64_t row) ISOBIT_INLINE_LAMBDA {
    constexpr bool kFetchAhead = kStores == Stores::streaming;
    return Row<S, T, kFetchAhead>(x_of(row), problem.cols, x_of(std::min(row + 1, end - 1)));
  };
  const auto write = [&](std::int64_t row, const Statistics& statistics) ISOBIT_INLINE_LAMBDA {
    const T* x = x_of(row);
    T* y = reinterpret_cast<T*>(problem.y.data) + row * problem.y.stride;
    if (!statistics.plain || !numbers || !std::isfinite(statistics.rstd)) [[unlikely]]
      write_any_row(x, y, problem.cols, weight, bias, statistics);
    else if (kStores == Stores::streaming && simd::streamable(y))
      write_row<kStores, Nan::absent>(x, y, problem.cols, weight, bias, Normalise<S>(statistics));
    else
      write_row<Stores::cached, Nan::absent>(x, y, problem.cols, weight, bias,
                                             Normalise<S>(statistics));
    if (problem.mean != nullptr) problem.mean[row] = from_float<float>(statistics.saved_mean);
    if (problem.rstd != nullptr) problem.rstd[row] = from_float<float>(statistics.saved_rstd);
  };
  if (begin == end) return;
  if constexpr (kStores == Stores::streaming) {
    for (std::int64_t row = begin; row < end; ++row)
      write(row, statistics(row_of(row), problem.cols, problem.eps));
    simd::fence();
  } else {
    // Three rows are under way: one gets its mean, the one before is written, the one between gets
    // its other statistics. None of the three waits for the last folds, divisions and roots of the
    // one just before it: 1.5x at 64 columns, 1.1x at 768; from memory it would lose a tenth.
    const auto mean = [&](std::int64_t row) ISOBIT_INLINE_LAMBDA {
      return row < end ? mean_of(row_of(row), problem.cols) : 0.0f;
    };
    Statistics current = statistics(row_of(begin), problem.cols, problem.eps);
    float next_mean = mean(begin + 1);
    for (std::int64_t row = begin; row < end; ++row) {
      const float mean_after_next = mean(row + 2);
      write(row, current);
      if (row + 1 < end)
        current = statistics(row_of(row + 1), next_mean, problem.cols, problem.eps);
      next_mean = mean_after_next;
    }
  }
}

}  // namespace

ForwardKernel forward_kernel(DType x, DType weight, bool streaming) {
  return visit_types(
      x, weight, [&](auto x_type, auto weight_type) ISOBIT_INLINE_LAMBDA -> ForwardKernel {
        using T = typename decltype(x_type)::type;
        using W = typename decltype(weight_type)::type;
        return streaming ? forward<T, W, Stores::streaming> : forward<T, W, Stores::cached>;
      });
}

}  // namespace isobit::layernorm::ISOBIT_ISA
