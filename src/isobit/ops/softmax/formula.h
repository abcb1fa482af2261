// SPDX-License-Identifier: Apache-2.0
// The arithmetic of softmax, of scalars and vectors, on every back end. S offers the operations of
// simd's F32. README.md derives it.
#pragma once

#include <limits>

#include "isobit/functions/exponential.h"
#include "isobit/functions/logarithm.h"

namespace isobit::softmax {

template <class S>
using VectorOf = typename S::V;

// A scale as a sign, and a magnitude of two parts.
template <class Real>
struct Scale {
  Real sign, head, rest;

  ISOBIT_INLINE static Scale of(double scale) {
    const double size = scale < 0 ? -scale : scale;
    const Real head = static_cast<Real>(size);
    return {Real(scale < 0 ? -1 : 1), head, static_cast<Real>(size - static_cast<double>(head))};
  }
};

// scale (x - largest), which is 0 or less, as nearly as two numbers can be: the difference of
// elements is exact, so that what all of a row have in common is of no account. NaN for NaN, and
// where the largest is infinite. kIsOne: the scale is 1, for the same bits with less to do.
template <class S, bool kIsOne = false>
ISOBIT_INLINE functions::Two<S> exponent_of(const Scale<typename S::Real>& scale, VectorOf<S> x,
                                            VectorOf<S> largest) {
  if constexpr (kIsOne) return functions::any_sum<S>(x, functions::negative<S>(largest));
  const functions::Two<S> difference =
      functions::any_sum<S>(S::mul(x, S::all(scale.sign)), functions::negative<S>(largest));
  const functions::Two<S> product = functions::product<S>(difference, S::all(scale.head));
  return {product.head, S::fma(difference.head, S::all(scale.rest), product.rest)};
}

// e^exponent, 1 or less. Of what is too small to be a number, the rest may be anything.
template <class S>
ISOBIT_INLINE VectorOf<S> weight_of(const functions::Two<S>& exponent) {
  const auto least = functions::all<S>(functions::kSingle<S> ? -200 : -1470);
  const auto rest = S::choose(S::less(exponent.head, least), functions::all<S>(0), exponent.rest);
  const functions::Exponential<S> e = functions::exponential<S>(S::max(least, exponent.head), rest);
  return functions::number<S>({S::add(functions::all<S>(1), S::add(e.head, e.rest)), e.exponent});
}

// The logarithm of a weight over the sum of all; never -0.
template <class S>
ISOBIT_INLINE VectorOf<S> log_of(const functions::Two<S>& exponent, VectorOf<S> log_of_sum) {
  constexpr auto kLowest = std::numeric_limits<typename S::Real>::lowest();
  const auto rest =
      S::choose(S::less(exponent.head, S::all(kLowest)), functions::all<S>(0), exponent.rest);
  return S::add(S::add(exponent.head, S::sub(rest, log_of_sum)), functions::all<S>(0));
}

// The gradient of x, from those of a row's y and their sum: of grad_y y, or with kLog of grad_y.
template <class S, bool kLog>
ISOBIT_INLINE VectorOf<S> gradient(VectorOf<S> scale, VectorOf<S> y, VectorOf<S> grad_y,
                                   VectorOf<S> sum) {
  if constexpr (kLog)
    return S::mul(scale, S::minus_product(functions::exp<S>(y), sum, grad_y));
  else
    return S::mul(scale, S::mul(y, S::sub(grad_y, sum)));
}

}  // namespace isobit::softmax
