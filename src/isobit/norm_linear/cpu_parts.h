// SPDX-License-Identifier: Apache-2.0
// Parts of normalised rows in vectors, for every norm's formula; each operator compiles them once
// for each instruction set.
#pragma once

#include <cmath>

#include "isobit/norm_linear/cpu_kernels.h"
#include "isobit/norms/cpu_forward_rows.h"

namespace isobit::norm_linear {

namespace detail {

template <class S, simd::Nan kNan, class X, class Y, class Normaliser>
ISOBIT_INLINE void write_part(const X* x, Y* y, std::int64_t first, std::int64_t count,
                              const norms::WeightRow<typename S::Real>& weight,
                              const norms::WeightRow<typename S::Real>& bias,
                              const Normaliser& normalise) {
  simd::for_each_vector<S, X>(0, count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    const typename S::V xhat = normalise(S::load(x + first + i, part...));
    S::template store<simd::Stores::cached, kNan>(
        y + i,
        S::fma(xhat, S::load(weight.at(first + i), part...), S::load(bias.at(first + i), part...)),
        part...);
  });
}

// Rows that are scaled, constant or not finite, and all where a weight is not finite.
template <class Formula, class S, class X, class Y>
[[gnu::noinline]] void write_any_part(const X* x, Y* y, std::int64_t first, std::int64_t count,
                                      const norms::WeightRow<typename S::Real>& weight,
                                      const norms::WeightRow<typename S::Real>& bias,
                                      const norms::Statistics<typename S::Real>& statistics) {
  write_part<S, simd::Nan::possible>(x, y, first, count, weight, bias,
                                     typename Formula::template NormaliseAny<S>(statistics));
}

template <class Formula, class S, class X, class Y>
void part(const Rows& rows, const norms::Tile& tile, void* to, std::int64_t pitch) {
  using Real = typename S::Real;
  const auto* terms = static_cast<const norms::RowTerms<Real>*>(rows.terms);
  const norms::WeightRow<Real> weight(rows.weights.weight, rows.weights.weight_mask);
  const norms::WeightRow<Real> bias(rows.weights.bias, rows.weights.bias_mask);
  const std::int64_t count = tile.last_col - tile.first_col;
  Y* y = static_cast<Y*>(to);
  for (std::int64_t row = tile.first_row; row < tile.last_row; ++row, y += pitch) {
    const norms::Statistics<Real>& statistics = terms[row].statistics;
    const X* x = row_of<const X>(rows.x, row);
    if (statistics.plain && rows.numbers && std::isfinite(statistics.rstd)) [[likely]]
      write_part<S, simd::Nan::absent>(x, y, tile.first_col, count, weight, bias,
                                       typename Formula::template Normalise<S>(statistics));
    else
      write_any_part<Formula, S>(x, y, tile.first_col, count, weight, bias, statistics);
  }
}

}  // namespace detail

template <class Formula>
PartKernels ISOBIT_ISA::Parts<Formula>::kernels(DType x, DType y) {
  using F32 = simd::F32;
  if (x == DType::f64)
    return {norms::all_finite<simd::F64>, detail::part<Formula, simd::F64, double, double>};
  const auto from = [&]<class X>(Type<X>) -> PartKernels {
    switch (y) {
      case DType::f16:  return {norms::all_finite<F32>, detail::part<Formula, F32, X, f16>};
      case DType::bf16: return {norms::all_finite<F32>, detail::part<Formula, F32, X, bf16>};
      default:          return {norms::all_finite<F32>, detail::part<Formula, F32, X, float>};
    }
  };
  switch (x) {
    case DType::f16:  return from(Type<f16>{});
    case DType::bf16: return from(Type<bf16>{});
    default:          return from(Type<float>{});
  }
}

}  // namespace isobit::norm_linear
