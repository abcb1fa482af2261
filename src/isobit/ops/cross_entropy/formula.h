// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a row of cross_entropy beside softmax's, of scalars and vectors, on every back
// end. S offers the operations of simd's F32. README.md derives it.
#pragma once

#include <limits>

#include "isobit/ops/softmax/formula.h"

namespace isobit::cross_entropy {

template <class S>
using VectorOf = typename S::V;

// x - largest, as softmax has it: 0 or less, and exact.
template <class S>
ISOBIT_INLINE functions::Two<S> exponent_of(VectorOf<S> x, VectorOf<S> largest) {
  return softmax::exponent_of<S, true>({1, 1, 0}, x, largest);
}
template <class S>
ISOBIT_INLINE VectorOf<S> weight_of(VectorOf<S> x, VectorOf<S> largest) {
  return softmax::weight_of<S>(exponent_of<S>(x, largest));
}

// What the options make of every row: the part of the target's own loss, that of each class, and
// the factor of the squared lse.
template <class Real>
struct Shares {
  Real own, each, squared;
  bool smooth;

  ISOBIT_INLINE static Shares of(double label_smoothing, double z_loss, std::int64_t cols) {
    return {static_cast<Real>(1 - label_smoothing),
            static_cast<Real>(label_smoothing / static_cast<double>(cols)),
            static_cast<Real>(z_loss), label_smoothing != 0};
  }
};

// What a row is known by: its largest element (never -0), and the sum of e^(x - largest). Both are
// NaN where the row has one, or an element that is infinitely large, or none that is not -infinity.
template <class S>
struct Known {
  VectorOf<S> largest, sum;

  // Of one row.
  using Real = typename S::Real;
  ISOBIT_INLINE static Known of(Real largest, Real sum) {
    return {sum == sum ? largest : sum, sum};
  }
  ISOBIT_INLINE static Known of_none() {
    constexpr Real kNan = std::numeric_limits<Real>::quiet_NaN();
    return {kNan, kNan};
  }
  ISOBIT_INLINE static Known of_ignored() { return {0, 1}; }

  ISOBIT_INLINE VectorOf<S> lse() const { return S::add(largest, functions::log<S>(sum)); }
};

// From the element and the weight of the target; the sum of all weights, and the sum of their
// products with x - largest, where each class has a share.
template <class S>
ISOBIT_INLINE VectorOf<S> loss_of(const Shares<typename S::Real>& shares, const Known<S>& known,
                                  VectorOf<S> x, VectorOf<S> weight, VectorOf<S> weights,
                                  VectorOf<S> differences) {
  const auto log_of_sum = functions::log<S>(known.sum);
  const auto own = S::sub(functions::all<S>(0),
                          softmax::log_of<S>(exponent_of<S>(x, known.largest), log_of_sum));
  auto terms = S::mul(S::all(shares.own), own);
  if (shares.squared != 0) {
    const auto lse = known.lse();
    terms = S::fma(S::mul(S::all(shares.squared), lse), lse, terms);
  }
  const auto loss = S::mul(weight, terms);
  if (!shares.smooth) return loss;
  return S::fma(S::all(shares.each), S::sub(S::mul(weights, log_of_sum), differences), loss);
}

// By what a row's gradient is made: by_weight e^(x - largest) - by_class w[c], less at_target where
// the class is the target.
template <class S>
struct Factors {
  using V = VectorOf<S>;
  V by_weight, by_class, at_target;

  ISOBIT_INLINE static Factors of(const Shares<typename S::Real>& shares, const Known<S>& known,
                                  V grad, V weight, V weights) {
    const V own = S::all(shares.own), each = S::all(shares.each), one = functions::all<S>(1);
    V part = own;
    if (shares.squared != 0)
      part = S::fma(S::mul(functions::all<S>(2), S::all(shares.squared)), known.lse(), part);
    part = S::mul(weight, part);
    if (shares.smooth) part = S::fma(each, weights, part);
    return {S::mul(S::mul(grad, part), S::div(one, known.sum)), S::mul(grad, each),
            S::mul(grad, S::mul(weight, own))};
  }
};

// The gradient of an element that is not the target's, which is less by at_target.
template <class S, bool kSmooth>
ISOBIT_INLINE VectorOf<S> gradient(VectorOf<S> by_weight, VectorOf<S> by_class, VectorOf<S> x,
                                   VectorOf<S> largest, VectorOf<S> weight) {
  const VectorOf<S> value = S::mul(by_weight, weight_of<S>(x, largest));
  if constexpr (kSmooth) return S::minus_product(by_class, weight, value);
  return value;
}

}  // namespace isobit::cross_entropy
