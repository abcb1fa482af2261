// SPDX-License-Identifier: Apache-2.0
// sigmoid and what is made of it: SiLU, the tanh form of GELU, tanh. And their derivatives.
//
// All are computed of -|x|, where nothing cancels, from z = e^-|v|; what x > 0 gives follows from
// it by one subtraction: sigmoid(x) = 1 - sigmoid(-x), silu(x) = x + silu(-x).
#pragma once

#include "isobit/functions/exponential.h"

namespace isobit::functions {

namespace detail {

// z = e^-v of a v that is not negative: value * 2^exponent, and as far as it matters beside 1,
// where it is value * power.
template <class S>
struct Decay {
  Two<S> value;
  VectorOf<S> less_one;  // the value - 1, with more digits than their difference
  VectorOf<S> exponent, power;
  Two<S> one_and_z;
  VectorOf<S> inverse;  // of 1 + z
};

template <class S>
ISOBIT_INLINE Decay<S> decay(const Two<S>& v) {
  const Exponential<S> e = exponential<S>(negative<S>(v.head), negative<S>(v.rest));
  Decay<S> result;
  result.exponent = e.exponent;
  result.power = power_beside_one<S>(e.exponent);
  result.less_one = S::add(e.head, e.rest);
  if constexpr (kExact<S>) {
    const Two<S> sum = ordered_sum<S>(all<S>(1), e.head);
    result.value = ordered_sum<S>(sum.head, S::add(sum.rest, e.rest));
  } else {
    result.value = {S::add(all<S>(1), result.less_one), all<S>(0)};
  }
  result.one_and_z = ordered_sum<S>(all<S>(1), S::mul(result.value.head, result.power));
  if constexpr (kExact<S>)
    result.one_and_z.rest = S::fma(result.value.rest, result.power, result.one_and_z.rest);
  const auto inverse = S::div(all<S>(1), result.one_and_z.head);
  result.inverse = S::minus_product(S::mul(inverse, inverse), result.one_and_z.rest, inverse);
  return result;
}

// x (1 + less_one): the value's rounding does not enter.
template <class S>
ISOBIT_INLINE VectorOf<S> times_value(const Decay<S>& z, VectorOf<S> x) {
  return S::fma(x, z.less_one, x);
}

// 1 / (1 + z)^2.
template <class S>
ISOBIT_INLINE VectorOf<S> inverse_square(const Decay<S>& z) {
  const Two<S> square = product<S>(z.one_and_z.head, z.one_and_z.head);
  const auto rest =
      S::fma(S::add(z.one_and_z.head, z.one_and_z.head), z.one_and_z.rest, square.rest);
  const auto inverse = S::div(all<S>(1), square.head);
  return S::minus_product(S::mul(inverse, inverse), rest, inverse);
}

// factor * z / (1 + z), but for 2^exponent.
template <class S>
ISOBIT_INLINE VectorOf<S> logistic(const Decay<S>& z, VectorOf<S> factor) {
  if constexpr (kExact<S>)
    return rounded<S>(product<S>(quotient<S>(z.value, z.one_and_z), factor));
  else
    return times_value<S>(z, S::mul(z.inverse, factor));
}

// x * sigmoid(v) for v of the sign of x, from e^-|v|.
template <class S>
ISOBIT_INLINE Scaled<S> gated(VectorOf<S> x, VectorOf<S> bounded, const Decay<S>& z) {
  return positive_part_less<S>(x, {logistic<S>(z, bounded), z.exponent}, z.power);
}

// The derivative of x * sigmoid(v): sigmoid(v) + x v' sigmoid(v) sigmoid(-v), where x v' has the
// sign of x and `weight` is its magnitude.
template <class S>
ISOBIT_INLINE Scaled<S> gated_derivative(VectorOf<S> x, VectorOf<S> weight, const Decay<S>& z) {
  const auto slope = S::sub(z.one_and_z.head, weight);
  const auto small = times_value<S>(z, S::mul(slope, inverse_square<S>(z)));
  return small_or_one_less<S>(x, {small, z.exponent}, z.power);
}

// |x|, at most where e^-|x| times any number is 0 or the number's range of no importance.
template <class S>
ISOBIT_INLINE VectorOf<S> bounded(VectorOf<S> x) {
  return kUsual<S> ? magnitude<S>(x) : at_most<S>(magnitude<S>(x), kSingle<S> ? 200 : 1470);
}

}  // namespace detail

template <class S>
ISOBIT_INLINE Scaled<S> sigmoid(VectorOf<S> x) {
  const auto z = detail::decay<S>({detail::bounded<S>(x), all<S>(0)});
  const auto small = detail::logistic<S>(z, all<S>(1));
  return small_or_one_less<S>(x, {small, z.exponent}, z.power);
}

// z / (1 + z)^2 for either sign of x.
template <class S>
ISOBIT_INLINE Scaled<S> sigmoid_derivative(VectorOf<S> x) {
  const auto z = detail::decay<S>({detail::bounded<S>(x), all<S>(0)});
  const auto value = detail::times_value<S>(z, detail::inverse_square<S>(z));
  return {kUsual<S> ? S::mul(value, z.power) : value, z.exponent};
}

template <class S>
ISOBIT_INLINE Scaled<S> silu(VectorOf<S> x) {
  const auto a = detail::bounded<S>(x);
  return detail::gated<S>(x, a, detail::decay<S>({a, all<S>(0)}));
}

template <class S>
ISOBIT_INLINE Scaled<S> silu_derivative(VectorOf<S> x) {
  const auto a = detail::bounded<S>(x);
  return detail::gated_derivative<S>(x, a, detail::decay<S>({a, all<S>(0)}));
}

namespace detail {

template <class Real>
struct GeluTanh;  // gelu_tanh(x) = x sigmoid(v), v = x (kSlope + kCubic x^2)
template <>
struct GeluTanh<float> {
  static constexpr float kSlope = 0x1.988454p0f, kSlopeRest = -0x1.857936p-25f;
  static constexpr float kCubic = 0x1.2444f2p-4f, kCubicRest = 0x1.49b16ap-29f;
  static constexpr float kFarthest = 13.75f;  // v is above 200 there
};
template <>
struct GeluTanh<double> {
  static constexpr double kSlope = 0x1.9884533d43651p0, kSlopeRest = -0x1.cbc0d30ebfd15p-54;
  static constexpr double kCubic = 0x1.2444f2a4d8b4bp-4, kCubicRest = -0x1.6c843a29d1c7p-61;
  static constexpr double kFarthest = 27.25;  // above 1470
};

template <class S>
struct GeluTanhParts {
  VectorOf<S> a, square;
  Decay<S> z;
};

// e^-v needs v to an absolute error of its last place at 1, so v has two parts.
template <class S>
ISOBIT_INLINE GeluTanhParts<S> gelu_tanh_parts(VectorOf<S> x) {
  using G = GeluTanh<typename S::Real>;
  const auto a = kUsual<S> ? magnitude<S>(x) : at_most<S>(magnitude<S>(x), G::kFarthest);
  const Two<S> square = product<S>(a, a);
  const Two<S> cubic = product<S>(square, Two<S>{S::all(G::kCubic), S::all(G::kCubicRest)});
  // Either may be the larger; their sum is exact all the same, by six operations.
  const auto sum = S::add(cubic.head, S::all(G::kSlope));
  const auto from_cubic = S::sub(sum, S::all(G::kSlope));
  const auto missed =
      S::add(S::sub(cubic.head, from_cubic), S::sub(S::all(G::kSlope), S::sub(sum, from_cubic)));
  const auto rest = S::add(missed, S::add(cubic.rest, S::all(G::kSlopeRest)));
  return {a, square.head, decay<S>(product<S>(Two<S>{sum, rest}, a))};
}

}  // namespace detail

template <class S>
ISOBIT_INLINE Scaled<S> gelu_tanh(VectorOf<S> x) {
  const auto parts = detail::gelu_tanh_parts<S>(x);
  return detail::gated<S>(x, parts.a, parts.z);
}

template <class S>
ISOBIT_INLINE Scaled<S> gelu_tanh_derivative(VectorOf<S> x) {
  using G = detail::GeluTanh<typename S::Real>;
  const auto parts = detail::gelu_tanh_parts<S>(x);
  const auto slope = S::fma(parts.square, S::all(3 * G::kCubic), S::all(G::kSlope));
  return detail::gated_derivative<S>(x, S::mul(parts.a, slope), parts.z);
}

// (e^2|x| - 1) / (e^2|x| + 1): the numerator is e^x - 1 to its last places, however small x is.
template <class S>
ISOBIT_INLINE VectorOf<S> tanh(VectorOf<S> x) {
  const auto a = at_most<S>(magnitude<S>(x), kSingle<S> ? 10 : 20);  // 1 to its last place
  const Exponential<S> e = exponential<S>(S::add(a, a), all<S>(0));
  const auto two_to_n = power<S>(e.exponent);
  const auto whole = S::sub(two_to_n, all<S>(1));
  VectorOf<S> result;
  if constexpr (kExact<S>) {
    const Two<S> sum = ordered_sum<S>(whole, S::mul(two_to_n, e.head));
    const Two<S> numerator = ordered_sum<S>(sum.head, S::fma(two_to_n, e.rest, sum.rest));
    const Two<S> denominator = sum_with<S>(numerator.head, 2);
    result = rounded<S>(
        quotient<S>(numerator, {denominator.head, S::add(denominator.rest, numerator.rest)}));
  } else {
    const auto numerator = S::fma(two_to_n, S::add(e.head, e.rest), whole);
    result = S::div(numerator, S::add(numerator, all<S>(2)));
  }
  return with_sign<S>(result, x);
}

// 1 - tanh(x)^2, which would cancel: 4 sigmoid'(2x).
template <class S>
ISOBIT_INLINE Scaled<S> tanh_derivative(VectorOf<S> x) {
  const Scaled<S> quarter = sigmoid_derivative<S>(S::add(x, x));
  return {S::mul(quarter.value, all<S>(4)), quarter.exponent};
}

}  // namespace isobit::functions
