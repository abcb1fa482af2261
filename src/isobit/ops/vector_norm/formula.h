// SPDX-License-Identifier: Apache-2.0
// What a norm is made of, once its row's sums are known, on every back end.
#pragma once

#include <cmath>
#include <limits>

#include "isobit/norms/statistics.h"
#include "isobit/ops/vector_norm/vector_norm.h"

namespace isobit::vector_norm {

// The larger one of two magnitudes; NaN where either is.
template <class Real>
ISOBIT_INLINE Real larger(Real a, Real b) {
  return a != a || a > b ? a : b;
}

// Of a row by its extremes, which are those of infinity where it has no elements.
template <class Real>
ISOBIT_INLINE Real largest_of(const norms::Extremes<Real>& extremes) {
  if (extremes.lowest > extremes.highest) return 0;
  return larger(std::fabs(extremes.lowest), std::fabs(extremes.highest));
}

// 2^exponent in two factors, neither of which leaves the range.
template <class Real>
struct Factors {
  Real first, second;

  ISOBIT_INLINE static Factors of(int exponent) {
    return {std::ldexp(Real(1), exponent / 2), std::ldexp(Real(1), exponent - exponent / 2)};
  }
  ISOBIT_INLINE Real times(Real x) const { return x * first * second; }
};

// The root of the squares' sum, which is given; where squares may have left the range, of a row
// that is scaled by a power of two. largest() is the row's, scaled_squares(factors) the sum of the
// squares of its elements times those.
template <class Real, class Largest, class ScaledSquares>
ISOBIT_INLINE Real root_of(Real squares, const Largest& largest,
                           const ScaledSquares& scaled_squares) {
  if (norms::in_range(squares)) return std::sqrt(squares);
  const Real most = largest();
  if (most == 0 || most != most || most == std::numeric_limits<Real>::infinity()) return most;
  const int exponent = norms::scaling_exponent(most, Real(0));
  const Real root = std::sqrt(scaled_squares(Factors<Real>::of(exponent)));
  return Factors<Real>::of(-exponent).times(root);
}

}  // namespace isobit::vector_norm
