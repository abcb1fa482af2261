// SPDX-License-Identifier: Apache-2.0
// What is known of a row that is normalised, and how a row that would leave the range of its type
// is scaled: shared by the formulas of all norms.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "isobit/core/inline.h"

namespace isobit::norms {

// The statistics of one row. The row is scaled by 2^exponent, and a mean is kept in three parts: a
// single float near 1e6 is off by up to 1/32, whatever the spread of the row.
template <class Real>
struct Statistics {
  Real mean = 0, shift = 0, residue = 0;  // of x * 2^exponent
  Real rstd = 0;                          // of x * 2^exponent
  Real saved_mean = 0, saved_rstd = 0;    // of x, as callers get them
  int exponent = 0;
  bool equal = false;  // x̂ is +0 everywhere
  bool plain = true;   // neither scaled, equal, nor with a residue: Normalise gives the same bits
};

template <class Real>
struct Moments {
  Real sum, squares;
};
template <class Real>
struct Extremes {
  Real lowest, highest;
};

// Between these, no square that matters has left the range of its type; and how far eps may be
// scaled.
template <class Real>
struct Range;
template <>
struct Range<float> {
  static constexpr float kLowest = 0x1p-80f, kHighest = 0x1p120f;
  static constexpr int kEpsExponent = 60;
};
template <>
struct Range<double> {
  static constexpr double kLowest = 0x1p-900, kHighest = 0x1p1000;
  static constexpr int kEpsExponent = 500;
};

template <class Real>
ISOBIT_INLINE bool in_range(Real squares) {
  return Range<Real>::kLowest < squares && squares < Range<Real>::kHighest;
}

template <class Real>
ISOBIT_INLINE Real inverse_root(Real value) {
  return 1 / std::sqrt(value);
}

// The power of two that brings the largest element to [1, 2), unless eps would leave its range.
template <class Real>
ISOBIT_INLINE int scaling_exponent(Real largest, Real eps) {
  const int exponent = -std::ilogb(largest);
  if (eps == 0) return exponent;
  const int limit = (Range<Real>::kEpsExponent - std::ilogb(eps)) >> 1;
  return exponent < limit ? exponent : limit;
}

// Statistics of a row without elements, or with one that is not finite.
template <class Real>
ISOBIT_INLINE Statistics<Real> no_statistics() {
  Statistics<Real> result;
  result.plain = false;
  result.mean = result.rstd = result.saved_mean = result.saved_rstd =
      std::numeric_limits<Real>::quiet_NaN();
  return result;
}

// Statistics that a caller gives, as rounded as they are. Put in their place field by field: a copy
// of all at once would wait for the fields that were just stored.
template <class Real>
ISOBIT_INLINE void put_given_statistics(Real mean, Real rstd, Statistics<Real>& to) {
  to = Statistics<Real>();
  to.mean = to.saved_mean = mean;
  to.rstd = to.saved_rstd = rstd;
}
template <class Real>
ISOBIT_INLINE Statistics<Real> given_statistics(Real mean, Real rstd) {
  Statistics<Real> result;
  put_given_statistics(mean, rstd, result);
  return result;
}

// The statistics of a row, in the rounds of a norm's formula.
template <class Formula, class Row, class Real>
ISOBIT_INLINE Statistics<Real> statistics_of(const Row& row, std::int64_t cols, Real eps) {
  const Real first = Formula::first_round(row, cols);
  return Formula::statistics(row, first, Formula::second_round(row, first), cols, eps);
}

// Multiplication by 2^exponent and back. Two factors: neither leaves the type's range, whatever the
// exponent.
template <class S>
class Scaling {
 public:
  using V = typename S::V;
  using Real = typename S::Real;
  ISOBIT_INLINE explicit Scaling(const Statistics<Real>& row)
      : into_{S::all(power(row, row.exponent / 2)),
              S::all(power(row, row.exponent - row.exponent / 2))},
        back_{S::all(std::ldexp(Real(1), row.exponent / 2)),
              S::all(std::ldexp(Real(1), row.exponent - row.exponent / 2))} {}

  ISOBIT_INLINE V into(V x) const { return S::mul(S::mul(x, into_[0]), into_[1]); }
  ISOBIT_INLINE V back(V x) const { return S::mul(S::mul(x, back_[0]), back_[1]); }

 private:
  ISOBIT_INLINE static Real power(const Statistics<Real>& row, int exponent) {
    return row.equal ? Real(0) : std::ldexp(Real(1), exponent);
  }

  V into_[2], back_[2];
};

}  // namespace isobit::norms
