// SPDX-License-Identifier: Apache-2.0
// The arithmetic of RMSNorm, which every back end shares: written once for scalars and vectors of
// any width. README.md derives it, docs/numerics.md says why each rounding is where it is.
#pragma once

#include "isobit/norms/statistics.h"

namespace isobit::rmsnorm {

using norms::Statistics;

// x̂ of a row: x / root mean square. V is what S computes with; S offers the operations of simd's
// F32.
template <class S>
class Normalise {
 public:
  using V = typename S::V;
  ISOBIT_INLINE explicit Normalise(const Statistics<typename S::Real>& row)
      : rstd_(S::all(row.rstd)) {}
  ISOBIT_INLINE V operator()(V x) const { return S::mul(x, rstd_); }
  // r * (g - x̂ * c2)
  ISOBIT_INLINE V gradient(V g, V xhat, V, V c2) const {
    return S::mul(rstd_, S::minus_product(xhat, c2, g));
  }

 private:
  V rstd_;
};

// The same for any row: scaled.
template <class S>
class NormaliseAny {
 public:
  using V = typename S::V;
  ISOBIT_INLINE explicit NormaliseAny(const Statistics<typename S::Real>& row)
      : plain_(row), scaling_(row) {}
  ISOBIT_INLINE V scaled(V x) const { return scaling_.into(x); }
  // Of which Normalise gives x̂.
  ISOBIT_INLINE V made_plain(V x) const { return scaled(x); }
  ISOBIT_INLINE V operator()(V x) const { return plain_(scaled(x)); }
  ISOBIT_INLINE V gradient(V g, V xhat, V c1, V c2) const {
    return scaling_.back(plain_.gradient(g, xhat, c1, c2));
  }

 private:
  Normalise<S> plain_;
  norms::Scaling<S> scaling_;
};

namespace detail {

// 1 / sqrt(squares / cols + eps), rounded about once: each of its roundings would count in every
// element of a row. For floats, double does that.
ISOBIT_INLINE float inverse_root(float squares, std::int64_t cols, float eps) {
  const double mean_square = double{squares} / static_cast<double>(cols);
  return static_cast<float>(1 / std::sqrt(mean_square + double{eps}));
}

// For doubles, `rest` keeps what the quotient and the sum lose, and a step of Newton's brings it
// in.
ISOBIT_INLINE double inverse_root(double squares, std::int64_t cols, double eps) {
  const double n = static_cast<double>(cols);
  const double mean_square = squares / n;
  const double value = mean_square + eps;
  const double added = value - mean_square;
  const double rest =
      std::fma(-mean_square, n, squares) / n + ((mean_square - (value - added)) + (eps - added));
  const double root = 1 / std::sqrt(value);
  if (!(value > 0)) return root;
  const double product = value * root;
  const double product_rest = std::fma(value, root, -product) + rest * root;
  const double missing = std::fma(-product, root, 1.0) - product_rest * root;
  return std::fma(root / 2, missing, root);
}

template <class Row, class Real = typename Row::Real>
ISOBIT_NOINLINE Statistics<Real> unusual_statistics(const Row& row, std::int64_t cols, Real eps) {
  const norms::Extremes<Real> extremes = row.extremes();
  const Real largest = std::fmax(std::fabs(extremes.lowest), std::fabs(extremes.highest));
  if (cols == 0 || std::isnan(extremes.lowest)) return norms::no_statistics<Real>();
  Statistics<Real> result;
  result.plain = false;
  if (std::isinf(largest)) return result;  // 1 / infinity
  if (largest == 0) {
    result.rstd = result.saved_rstd = eps == 0 ? Real(0) : norms::inverse_root(eps);
    return result;
  }
  result.exponent = norms::scaling_exponent(largest, eps);
  const NormaliseAny<typename Row::Scalar> any(result);
  const Real squares = row.moments([&](Real x) { return any.scaled(x); }).squares;
  result.rstd = inverse_root(squares, cols, std::ldexp(eps, 2 * result.exponent));
  result.saved_rstd = std::ldexp(result.rstd, result.exponent);
  return result;
}

}  // namespace detail

// RMSNorm as the rows of src/isobit/norms want it. A Row gives, in the canonical order: squares()
// of x; and, of the row that rare() gives, moments(f) of f(x), and its extremes() (NaN where an
// element is).
struct Formula {
  template <class S>
  using Normalise = rmsnorm::Normalise<S>;
  template <class S>
  using NormaliseAny = rmsnorm::NormaliseAny<S>;

  static constexpr bool kCentered = false;
  static constexpr bool kHasBias = false;

  // The only round over a row: the sum of its squares.
  template <class Row>
  ISOBIT_INLINE static typename Row::Real first_round(const Row& row, std::int64_t) {
    return row.squares();
  }

  template <class Row, class Real = typename Row::Real>
  ISOBIT_INLINE static Real second_round(const Row&, Real squares) {
    return squares;
  }

  template <class Row, class Real = typename Row::Real>
  ISOBIT_INLINE static Statistics<Real> statistics(const Row& row, Real, Real squares,
                                                   std::int64_t cols, Real eps) {
    if (!norms::in_range(squares)) [[unlikely]]
      return detail::unusual_statistics(row.rare(), cols, eps);
    Statistics<Real> result;
    result.rstd = detail::inverse_root(squares, cols, eps);
    result.saved_rstd = result.rstd;
    return result;
  }
};

}  // namespace isobit::rmsnorm
