// SPDX-License-Identifier: Apache-2.0
// The arithmetic of LayerNorm, which every back end shares: written once for scalars and vectors of
// any width. README.md derives it, docs/numerics.md says why each rounding is where it is.
#pragma once

#include "isobit/norms/statistics.h"

namespace isobit::layernorm {

using norms::Statistics;

// x̂ of a row: (x - mean) / sigma. V is what S computes with; S offers the operations of simd's F32.
template <class S>
class Normalise {
 public:
  using V = typename S::V;
  ISOBIT_INLINE explicit Normalise(const Statistics<typename S::Real>& row)
      : mean_(S::all(row.mean)), shift_(S::all(row.shift)), rstd_(S::all(row.rstd)) {}
  ISOBIT_INLINE V centered(V x) const { return S::sub(S::sub(x, mean_), shift_); }
  ISOBIT_INLINE V operator()(V x) const { return S::mul(centered(x), rstd_); }
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
  ISOBIT_INLINE explicit NormaliseAny(const Statistics<typename S::Real>& row)
      : plain_(row), scaling_(row), residue_(S::all(row.residue)), rstd_(S::all(row.rstd)) {}
  ISOBIT_INLINE V scaled(V x) const { return scaling_.into(x); }
  ISOBIT_INLINE V centered(V x) const { return S::sub(plain_.centered(scaled(x)), residue_); }
  // Of which Normalise gives x̂ where it knows no mean.
  ISOBIT_INLINE V made_plain(V x) const { return centered(x); }
  ISOBIT_INLINE V operator()(V x) const { return S::mul(centered(x), rstd_); }
  ISOBIT_INLINE V gradient(V g, V xhat, V c1, V c2) const {
    return scaling_.back(plain_.gradient(g, xhat, c1, c2));
  }

 private:
  Normalise<S> plain_;
  norms::Scaling<S> scaling_;
  V residue_, rstd_;
};

namespace detail {

// A mean that is off by more than a quarter of sigma leaves the variance too few digits.
template <class Real>
ISOBIT_INLINE bool accurate(Real shift, Real mean_square) {
  return !(shift * shift > mean_square / 16);
}

// The variance, from the mean and the mean square of deviations; NaN stays NaN.
template <class Real>
ISOBIT_INLINE Real variance(Real shift, Real mean_square) {
  const Real value = std::fma(-shift, shift, mean_square);
  return value < 0 ? Real(0) : value;
}

template <class Row, class Real = typename Row::Real>
ISOBIT_NOINLINE Statistics<Real> unusual_statistics(const Row& row, std::int64_t cols, Real eps,
                                                    bool in_range) {
  const norms::Extremes<Real> extremes = row.extremes();
  if (cols == 0 || !std::isfinite(extremes.lowest) || !std::isfinite(extremes.highest))
    return norms::no_statistics<Real>();
  Statistics<Real> result;
  result.plain = false;
  if (extremes.lowest == extremes.highest) {
    result.equal = true;
    result.mean = Real(-0.0);  // 0 * x - (-0) is +0 for either sign of x
    result.rstd = result.saved_rstd = eps == 0 ? Real(0) : norms::inverse_root(eps);
    result.saved_mean = extremes.lowest;
    return result;
  }
  const Real largest = std::fmax(std::fabs(extremes.lowest), std::fabs(extremes.highest));
  if (!in_range) result.exponent = norms::scaling_exponent(largest, eps);
  const Real n = static_cast<Real>(cols);
  Real value = 0;
  // Each round tells what the parts of the mean so far have missed. In a loop: a kernel holds the
  // code of a round once.
  Real* const parts[] = {&result.mean, &result.shift, &result.residue};
  for (Real* const part : parts) {
    using Any = NormaliseAny<typename Row::Scalar>;
    const norms::Moments<Real> moments =
        row.moments([any = Any(result)](Real x) { return any.centered(x); });
    *part = moments.sum / n;
    const Real mean_square = moments.squares / n;
    value = variance(*part, mean_square);
    if (part == &result.shift && accurate(result.shift, mean_square)) break;
  }
  result.rstd = norms::inverse_root(value + std::ldexp(eps, 2 * result.exponent));
  result.saved_mean = std::ldexp(result.mean + (result.shift + result.residue), -result.exponent);
  result.saved_rstd = std::ldexp(result.rstd, result.exponent);
  return result;
}

}  // namespace detail

// LayerNorm as the rows of src/isobit/norms want it. A Row gives, in the canonical order: sum() and
// deviations(mean) of x; and, of the row that rare() gives, sum(f) and moments(f) of f(x), and its
// extremes() (NaN where an element is).
struct Formula {
  template <class S>
  using Normalise = layernorm::Normalise<S>;
  template <class S>
  using NormaliseAny = layernorm::NormaliseAny<S>;

  static constexpr bool kCentered = true;  // dX loses its mean
  static constexpr bool kHasBias = true;

  // The first round over a row: its mean, as far as one number can tell.
  template <class Row>
  ISOBIT_INLINE static typename Row::Real first_round(const Row& row, std::int64_t cols) {
    return row.sum() / static_cast<typename Row::Real>(cols);
  }

  // The second round: what it missed, and the squares.
  template <class Row, class Real = typename Row::Real>
  ISOBIT_INLINE static norms::Moments<Real> second_round(const Row& row, Real mean) {
    return row.deviations(mean);
  }

  // What both rounds tell, or all anew the long way where that is not exact enough.
  template <class Row, class Real = typename Row::Real>
  ISOBIT_INLINE static Statistics<Real> statistics(const Row& row, Real mean,
                                                   const norms::Moments<Real>& deviations,
                                                   std::int64_t cols, Real eps) {
    const Real n = static_cast<Real>(cols);
    Statistics<Real> result;
    result.mean = mean;
    result.shift = deviations.sum / n;
    const Real mean_square = deviations.squares / n;
    const bool in_range = norms::in_range(deviations.squares);
    if (!in_range || !detail::accurate(result.shift, mean_square)) [[unlikely]] {
      // Its own object: the usual one shall stay in registers.
      const Statistics<Real> unusual = detail::unusual_statistics(row.rare(), cols, eps, in_range);
      result = unusual;
      return result;
    }
    result.rstd = norms::inverse_root(detail::variance(result.shift, mean_square) + eps);
    result.saved_mean = result.mean + result.shift;
    result.saved_rstd = result.rstd;
    return result;
  }
};

}  // namespace isobit::layernorm
