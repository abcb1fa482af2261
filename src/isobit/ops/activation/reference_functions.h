// SPDX-License-Identifier: Apache-2.0
// The functions and their derivatives by the C library's, put together so that nothing cancels: of
// floats in double, of doubles in long double.
#pragma once

#include <cmath>
#include <type_traits>

#include "isobit/core/quad.h"

namespace isobit::activation::exact {

// erfc(z + low): the argument's own rounding would be multiplied by 2 z^2.
template <class Real>
Real erfc_of(Real z, Real low) {
  const Real twice_density = 2 / std::sqrt(std::acos(Real(-1)));
  return std::erfc(z) - twice_density * std::exp(-z * z) * low;
}

// The normal distribution's integral up to x.
template <class Real>
Real integral(Real x) {
  if (std::isinf(x)) return x < 0 ? 0 : 1;
  const Real root = std::sqrt(Real(2)), half_root = root / 2;
  const Real z = -x * half_root;
  // root * root is not 2: half_root is off by (1 - half_root^2 * 2) / (4 half_root).
  const Real off = std::fma(-2 * half_root, half_root, Real(1)) / (4 * half_root);
  const Real low = std::fma(-x, half_root, -z) - x * off;
  return erfc_of(z, low) / 2;
}
template <class Real>
Real density(Real x) {
  if (std::isinf(x)) return 0;
  const Real square = x * x, low = std::fma(x, x, -square);
  return std::exp(-square / 2) * (1 - low / 2) / std::sqrt(2 * std::acos(Real(-1)));
}

template <class Real>
Real sigmoid(Real x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
// sigmoid(x + low).
template <class Real>
Real sigmoid_of(Real x, Real low) {
  return sigmoid(x) * (1 + low * sigmoid(-x));
}
template <class Real>
Real silu(Real x) {
  return std::isinf(x) && x < 0 ? Real(-0.0) : x * sigmoid(x);
}
template <class Real>
Real gelu(Real x) {
  return std::isinf(x) ? (x < 0 ? Real(-0.0) : x) : x * integral(x);
}
// GELU's tanh form is x sigmoid(v), v = sqrt(8 / pi) (x + 0.044715 x^3), in two parts: what v is
// off by, the result is off by relative to its size.
template <class Real>
struct Inner {
  Real v, low, slope;  // slope: x v'

  explicit Inner(Real x) {
    using Wide = std::conditional_t<std::is_same_v<Real, double>, long double, quad>;
    const Wide root = Wide(0x1.9884533d43651p0) + Wide(-0x1.cbc0d30ebfd15p-54);
    const Wide cube = Wide(44715) / 1000000 * x * x * x;
    const Wide exact = root * (x + cube);
    v = static_cast<Real>(exact);
    low = std::fabs(v) > 20000 ? 0 : static_cast<Real>(exact - v);  // far beyond all ranges
    slope = static_cast<Real>(root * (x + 3 * cube));
  }
  Real sigmoid() const { return sigmoid_of(v, low); }
  Real derivative() const { return sigmoid_of(v, low) * sigmoid_of(-v, -low); }
};
template <class Real>
Real gelu_tanh(Real x) {
  return std::isinf(x) ? (x < 0 ? Real(-0.0) : x) : x * Inner<Real>(x).sigmoid();
}

template <class Real>
Real sigmoid_derivative(Real x) {
  return sigmoid(x) * sigmoid(-x);
}
template <class Real>
Real tanh_derivative(Real x) {
  return 4 * sigmoid_derivative(2 * x);
}
template <class Real>
Real finite_product(Real a, Real b) {  // where b is 0, whatever a is
  return b == 0 ? 0 : a * b;
}
template <class Real>
Real gelu_derivative(Real x) {
  return integral(x) + finite_product(x, density(x));
}
template <class Real>
Real gelu_derivative_scale(Real x) {
  return integral(x) + finite_product(std::fabs(x), density(x));
}
template <class Real>
Real gelu_tanh_derivative(Real x) {
  const Inner<Real> inner(x);
  return inner.sigmoid() + finite_product(inner.slope, inner.derivative());
}
template <class Real>
Real gelu_tanh_derivative_scale(Real x) {
  const Inner<Real> inner(x);
  return inner.sigmoid() + finite_product(std::fabs(inner.slope), inner.derivative());
}
template <class Real>
Real silu_derivative(Real x) {
  return sigmoid(x) + finite_product(x, sigmoid_derivative(x));
}
template <class Real>
Real silu_derivative_scale(Real x) {
  return sigmoid(x) + finite_product(std::fabs(x), sigmoid_derivative(x));
}

}  // namespace isobit::activation::exact
