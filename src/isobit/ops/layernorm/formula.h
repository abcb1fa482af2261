// SPDX-License-Identifier: Apache-2.0
// The arithmetic of LayerNorm, which every back end shares: written once for scalars and vectors of
// any width. README.md derives it, docs/numerics.md says why each rounding is where it is.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "isobit/core/inline.h"

namespace isobit::layernorm {

// The statistics of one row. The row is scaled by 2^exponent, and its mean is kept in three parts:
// a single float near 1e6 is off by up to 1/32, whatever the spread of the row.
struct Statistics {
  float mean = 0, shift = 0, residue = 0;  // of x * 2^exponent
  float rstd = 0;                          // of x * 2^exponent
  float saved_mean = 0, saved_rstd = 0;    // of x, as callers get them
  int exponent = 0;
  bool equal = false;  // all elements are equal: x̂ is +0
  bool plain = true;   // neither scaled, equal, nor with a residue: Normalise gives the same bits
};

// x̂ of a row: (x - mean) / sigma. V is what S computes with; S offers the operations of simd's F32.
template <class S>
class Normalise {
 public:
  using V = typename S::V;
  ISOBIT_INLINE explicit Normalise(const Statistics& row)
      : mean_(S::all(row.mean)), shift_(S::all(row.shift)), rstd_(S::all(row.rstd)) {}
  ISOBIT_INLINE V centred(V x) const { return S::sub(S::sub(x, mean_), shift_); }
  ISOBIT_INLINE V operator()(V x) const { return S::mul(centred(x), rstd_); }
  // r * (g - c1 - x̂ * c2)
  ISOBIT_INLINE V gradient(V g, V xhat, V c1, V c2) const {
    return S::mul(rstd_, S::minus_product(xhat, c2, S::sub(g, c1)));
  }

 private:
  V mean_, shift_, rstd_;
};

// The same for any row: scaled, with all three parts of the mean.
template <class S>
class NormaliseAny {
 public:
  using V = typename S::V;
  ISOBIT_INLINE explicit NormaliseAny(const Statistics& row)
      : plain_(row),
        residue_(S::all(row.residue)),
        rstd_(S::all(row.rstd)),
        into_{S::all(power(row, row.exponent / 2)),
              S::all(power(row, row.exponent - row.exponent / 2))},
        back_{S::all(std::ldexp(1.0f, row.exponent / 2)),
              S::all(std::ldexp(1.0f, row.exponent - row.exponent / 2))} {}

  // Two factors: neither leaves float's range, whatever the exponent.
  ISOBIT_INLINE V scaled(V x) const { return S::mul(S::mul(x, into_[0]), into_[1]); }
  ISOBIT_INLINE V centred(V x) const { return S::sub(plain_.centred(scaled(x)), residue_); }
  ISOBIT_INLINE V operator()(V x) const { return S::mul(centred(x), rstd_); }
  ISOBIT_INLINE V gradient(V g, V xhat, V c1, V c2) const {
    return S::mul(S::mul(plain_.gradient(g, xhat, c1, c2), back_[0]), back_[1]);
  }

 private:
  ISOBIT_INLINE static float power(const Statistics& row, int exponent) {
    return row.equal ? 0.0f : std::ldexp(1.0f, exponent);
  }

  Normalise<S> plain_;
  V residue_, rstd_, into_[2], back_[2];
};

struct Moments {
  float sum, squares;
};
struct Extremes {
  float lowest, highest;
};

namespace detail {

// Between these, no square that matters has left float's range.
ISOBIT_INLINE bool in_range(float squares) { return 0x1p-80f < squares && squares < 0x1p120f; }

// A mean that is off by more than a quarter of sigma leaves the variance too few digits.
ISOBIT_INLINE bool accurate(float shift, float mean_square) {
  return !(shift * shift > mean_square / 16);
}

// The variance, from the mean and the mean square of deviations; NaN stays NaN.
ISOBIT_INLINE float variance(float shift, float mean_square) {
  const float value = std::fma(-shift, shift, mean_square);
  return value < 0 ? 0.0f : value;
}

ISOBIT_INLINE float inverse_root(float value) { return 1.0f / std::sqrt(value); }

// The power of two that brings the largest element to [1, 2), unless eps would leave float's range.
ISOBIT_INLINE int scaling_exponent(float largest, float eps) {
  const int exponent = -std::ilogb(largest);
  if (eps == 0) return exponent;
  const int limit = (60 - std::ilogb(eps)) >> 1;
  return exponent < limit ? exponent : limit;
}

template <class Row>
[[gnu::noinline]] Statistics unusual_statistics(const Row& row, std::int64_t cols, float eps,
                                                bool in_range) {
  Statistics result;
  result.plain = false;
  const Extremes extremes = row.extremes();
  if (cols == 0 || !std::isfinite(extremes.lowest) || !std::isfinite(extremes.highest)) {
    result.mean = result.rstd = result.saved_mean = result.saved_rstd =
        std::numeric_limits<float>::quiet_NaN();
    return result;
  }
  if (extremes.lowest == extremes.highest) {
    result.equal = true;
    result.mean = -0.0f;  // 0 * x - (-0) is +0 for either sign of x
    result.rstd = result.saved_rstd = eps == 0 ? 0.0f : inverse_root(eps);
    result.saved_mean = extremes.lowest;
    return result;
  }
  const float largest = std::fmax(std::fabs(extremes.lowest), std::fabs(extremes.highest));
  if (!in_range) result.exponent = scaling_exponent(largest, eps);
  const float n = static_cast<float>(cols);
  result.mean = row.sum(result) / n;
  Moments deviations = row.deviations(result);
  result.shift = deviations.sum / n;
  float mean_square = deviations.squares / n;
  float value = variance(result.shift, mean_square);
  if (!accurate(result.shift, mean_square)) {
    deviations = row.deviations(result);
    result.residue = deviations.sum / n;
    mean_square = deviations.squares / n;
    value = variance(result.residue, mean_square);
  }
  result.rstd = inverse_root(value + std::ldexp(eps, 2 * result.exponent));
  result.saved_mean = std::ldexp(result.mean + (result.shift + result.residue), -result.exponent);
  result.saved_rstd = std::ldexp(result.rstd, result.exponent);
  return result;
}

}  // namespace detail

// The first round over a row: its mean, as far as one float can tell. A Row gives, in the canonical
// order: sum() and deviations(mean) of x, sum(statistics) and deviations(statistics) of the row
// that NormaliseAny would scale and centre, and its extremes() (NaN where an element is).
template <class Row>
ISOBIT_INLINE float mean_of(const Row& row, std::int64_t cols) {
  return row.sum() / static_cast<float>(cols);
}

// The second round: all else, the short way where that is exact enough.
template <class Row>
ISOBIT_INLINE Statistics statistics(const Row& row, float mean, std::int64_t cols, float eps) {
  const float n = static_cast<float>(cols);
  Statistics result;
  result.mean = mean;
  const Moments deviations = row.deviations(mean);
  result.shift = deviations.sum / n;
  const float mean_square = deviations.squares / n;
  const bool in_range = detail::in_range(deviations.squares);
  if (!in_range || !detail::accurate(result.shift, mean_square)) [[unlikely]]
    return detail::unusual_statistics(row, cols, eps, in_range);
  result.rstd = detail::inverse_root(detail::variance(result.shift, mean_square) + eps);
  result.saved_mean = result.mean + result.shift;
  result.saved_rstd = result.rstd;
  return result;
}

template <class Row>
ISOBIT_INLINE Statistics statistics(const Row& row, std::int64_t cols, float eps) {
  return statistics(row, mean_of(row, cols), cols, eps);
}

// Statistics that a caller gives, as rounded as they are.
ISOBIT_INLINE Statistics given_statistics(float mean, float rstd) {
  Statistics result;
  result.mean = result.saved_mean = mean;
  result.rstd = result.saved_rstd = rstd;
  return result;
}

}  // namespace isobit::layernorm
