// SPDX-License-Identifier: Apache-2.0
// What all functions are made of: powers of two from exponent bits, sums and products that keep
// their rounding errors, polynomials.
//
// S is a vector type of simd, or tile::Scalar. Every step is one correctly rounded operation of it,
// or moves bits, so that every S gives the same bits.
#pragma once

#include <cstdint>
#include <limits>

#include "isobit/core/inline.h"

namespace isobit::functions {

template <class Real>
struct Format;
template <>
struct Format<float> {
  using Word = std::uint32_t;
  static constexpr int kMantissa = 23;
  static constexpr Word kSign = 0x80000000u;
  // Added to a number, it leaves the nearest integer in the last bits, ties to even.
  static constexpr float kRounder = 0x1.8p23f;
  // The same, with the bias of exponents: shifted to their place, the last bits are a power of two.
  static constexpr float kBiased = 0x1.8p23f + 127;
  // How far number() scales: beyond, all is zero or infinite. And where 1 + 2^n is 1.
  static constexpr float kMostScale = 250, kLeastPower = -100;
  static constexpr float kLeastFactor = -280;  // any number times it is 0
};
template <>
struct Format<double> {
  using Word = std::uint64_t;
  static constexpr int kMantissa = 52;
  static constexpr Word kSign = 0x8000000000000000u;
  static constexpr double kRounder = 0x1.8p52;
  static constexpr double kBiased = 0x1.8p52 + 1023;
  static constexpr double kMostScale = 2000, kLeastPower = -1000;
  static constexpr double kLeastFactor = -2100;
};

template <class S>
using FormatOf = Format<typename S::Real>;
template <class S>
using VectorOf = typename S::V;

template <class S>
inline constexpr bool kSingle = sizeof(typename S::Real) == 4;

// Whether results keep the rounding errors of their parts. Floats are within 4 units of their last
// place without; doubles need it to be within 2.
template <class S>
inline constexpr bool kExact = !kSingle<S>;

// Whether a caller promises that e^-|x|, or what stands for it, is at least 2^-100, and |x| 2^-60
// where that is a factor. Then nothing leaves the range of normal numbers, and functions leave
// out what others need; the bits are the same.
template <class S>
inline constexpr bool kUsual = requires { S::kUsual; };

// The vectors of Base with that promise.
template <class Base>
struct Usual : Base {
  static constexpr bool kUsual = true;
};

template <class S>
ISOBIT_INLINE VectorOf<S> all(double value) {
  return S::all(static_cast<typename S::Real>(value));
}

// c[0] + c[1] x + ..., by Horner's rule.
template <class S, class... Rest>
ISOBIT_INLINE VectorOf<S> polynomial(VectorOf<S> x, typename S::Real first, Rest... rest) {
  if constexpr (sizeof...(Rest) == 0) {
    return S::all(first);
  } else {
    return S::fma(polynomial<S>(x, rest...), x, S::all(first));
  }
}

template <class S>
ISOBIT_INLINE VectorOf<S> magnitude(VectorOf<S> x) {
  return S::real(S::bits_and(S::bits(x), S::all_bits(~FormatOf<S>::kSign)));
}
template <class S>
ISOBIT_INLINE VectorOf<S> negative(VectorOf<S> x) {
  return S::real(S::bits_xor(S::bits(x), S::all_bits(FormatOf<S>::kSign)));
}
// x, which is not negative, with the sign of `of`.
template <class S>
ISOBIT_INLINE VectorOf<S> with_sign(VectorOf<S> x, VectorOf<S> of) {
  return S::real(
      S::bits_xor(S::bits(x), S::bits_and(S::bits(of), S::all_bits(FormatOf<S>::kSign))));
}

// Between -limit and limit; NaN stays.
template <class S>
ISOBIT_INLINE VectorOf<S> at_most(VectorOf<S> x, double limit) {
  return S::min(all<S>(limit), x);
}
template <class S>
ISOBIT_INLINE VectorOf<S> at_least(VectorOf<S> x, double limit) {
  return S::max(all<S>(limit), x);
}

// 2^n of a whole n whose power is a normal number.
template <class S>
ISOBIT_INLINE VectorOf<S> power_of_biased(VectorOf<S> biased) {
  return S::real(S::template shift_left<FormatOf<S>::kMantissa>(S::bits(biased)));
}
template <class S>
ISOBIT_INLINE VectorOf<S> power(VectorOf<S> n) {
  return power_of_biased<S>(S::add(n, S::all(FormatOf<S>::kBiased)));
}
// The same, or a power that no longer matters beside 1.
template <class S>
ISOBIT_INLINE VectorOf<S> power_beside_one(VectorOf<S> n) {
  if constexpr (kUsual<S>)
    return power<S>(n);
  else
    return power<S>(at_least<S>(n, FormatOf<S>::kLeastPower));
}

// value * 2^exponent. A whole exponent is kept apart where the product may leave the range of its
// type before something else brings it back; the value of usual arguments is the number.
template <class S>
struct Scaled {
  VectorOf<S> value, exponent;
};

// The number, rounded once. Two factors, of which neither leaves the range: the first product is
// exact, unless the result is zero.
template <class S>
ISOBIT_INLINE VectorOf<S> number(const Scaled<S>& x) {
  if constexpr (kUsual<S>) {
    return x.value;
  } else if constexpr (requires { S::scaled(x.value, x.exponent); }) {
    return S::scaled(x.value, x.exponent);
  } else {
    using F = FormatOf<S>;
    const auto n = at_least<S>(at_most<S>(x.exponent, F::kMostScale), -F::kMostScale);
    const auto biased = S::fma(n, all<S>(0.5), S::all(F::kBiased));
    const auto half = S::sub(biased, S::all(F::kBiased));
    return S::mul(S::mul(x.value, power_of_biased<S>(biased)), power<S>(S::sub(n, half)));
  }
}

// x as a number of magnitude 1/4 to 1/2, so that no product with one overflows, and its exponent;
// what has none, 0, infinity or NaN, as it is.
template <class S>
ISOBIT_INLINE Scaled<S> split(VectorOf<S> x) {
  using Real = typename S::Real;
  using F = Format<Real>;
  using Word = typename F::Word;
  constexpr Word kFraction = (Word{1} << F::kMantissa) - 1;
  constexpr Word kQuarter = kSingle<S> ? Word{0x3e800000u} : static_cast<Word>(0x3fd0000000000000u);
  constexpr Word kInteger = kSingle<S> ? Word{0x4b000000u} : static_cast<Word>(0x4330000000000000u);
  constexpr double kOffset = kSingle<S> ? 0x1p23 + 125 : 0x1p52 + 1021;
  constexpr double kDigits = F::kMantissa + 1;
  constexpr double kRaised = kSingle<S> ? 0x1p24 : 0x1p53;
  constexpr Real kLeastNormal = std::numeric_limits<Real>::min();
  constexpr Real kInfinity = std::numeric_limits<Real>::infinity();

  const auto size = magnitude<S>(x);
  const auto subnormal = S::less(size, S::all(kLeastNormal));
  const auto normal = S::choose(subnormal, S::mul(x, all<S>(kRaised)), x);
  const auto offset = S::choose(subnormal, all<S>(kOffset + kDigits), all<S>(kOffset));
  const auto bits = S::bits(normal);
  const auto biased = S::template shift_right<F::kMantissa>(S::bits(magnitude<S>(normal)));
  const auto exponent = S::sub(S::real(S::bits_add(biased, S::all_bits(kInteger))), offset);
  const auto value = S::real(
      S::bits_add(S::bits_and(bits, S::all_bits(F::kSign | kFraction)), S::all_bits(kQuarter)));
  const auto finite = S::less(size, S::all(kInfinity)), any = S::less(all<S>(0), size);
  return {S::choose(any, S::choose(finite, value, x), x),
          S::choose(any, S::choose(finite, exponent, all<S>(0)), all<S>(0))};
}

template <class S>
ISOBIT_INLINE Scaled<S> product(const Scaled<S>& a, const Scaled<S>& b) {
  return {S::mul(a.value, b.value), S::add(a.exponent, b.exponent)};
}
template <class S>
ISOBIT_INLINE Scaled<S> quotient(const Scaled<S>& a, const Scaled<S>& b) {
  return {S::div(a.value, b.value), S::sub(a.exponent, b.exponent)};
}

// The number times `factor`: out of range only where the product is, and then rounded to its range
// once, whatever the two are. Of usual arguments only a product that is a normal number, or that of
// a factor 0, is sure to be the same.
template <class S>
ISOBIT_INLINE VectorOf<S> times(const Scaled<S>& x, VectorOf<S> factor) {
  if constexpr (kUsual<S>)
    return S::mul(x.value, factor);
  else
    return number<S>(product<S>(x, split<S>(factor)));
}

// For functions that are computed of -|x|, whose value is `small`, with its power of two beside
// one: small of x < 0, 1 - small of others.
template <class S>
ISOBIT_INLINE Scaled<S> small_or_one_less(VectorOf<S> x, const Scaled<S>& small,
                                          VectorOf<S> power) {
  const auto below = S::less(x, all<S>(0));
  const auto other = S::minus_product(small.value, power, all<S>(1));
  if constexpr (kUsual<S>)
    return {S::choose(below, S::mul(small.value, power), other), all<S>(0)};
  else
    return {S::choose(below, small.value, other), S::choose(below, small.exponent, all<S>(0))};
}

// -small of x < 0, x - small of others; x / 2 near 0, where x is so small that products with it
// would lose digits below the range of normal numbers.
template <class S>
ISOBIT_INLINE Scaled<S> positive_part_less(VectorOf<S> x, const Scaled<S>& small,
                                           VectorOf<S> power) {
  if constexpr (kUsual<S>) {
    return {S::minus_product(small.value, power, S::max(x, all<S>(0))), all<S>(0)};
  } else {
    const auto below = S::less(x, all<S>(0)), tiny = S::less(magnitude<S>(x), all<S>(0x1p-60));
    const auto value =
        S::choose(below, negative<S>(small.value), S::minus_product(small.value, power, x));
    const auto exponent = S::choose(below, small.exponent, all<S>(0));
    return {S::choose(tiny, S::mul(x, all<S>(0x1p63)), value),
            S::choose(tiny, all<S>(-64), exponent)};
  }
}

// A number as the sum of two.
template <class S>
struct Two {
  VectorOf<S> head, rest;
};

// a + b exactly, where a is the larger or zero.
template <class S>
ISOBIT_INLINE Two<S> ordered_sum(VectorOf<S> a, VectorOf<S> b) {
  const auto sum = S::add(a, b);
  return {sum, S::add(S::sub(a, sum), b)};
}
// a + b exactly.
template <class S>
ISOBIT_INLINE Two<S> any_sum(VectorOf<S> a, VectorOf<S> b) {
  const auto sum = S::add(a, b);
  const auto of_b = S::sub(sum, a);
  return {sum, S::add(S::sub(a, S::sub(sum, of_b)), S::sub(b, of_b))};
}
// a + constant exactly, where neither is negative and the constant is a power of two.
template <class S>
ISOBIT_INLINE Two<S> sum_with(VectorOf<S> a, double constant) {
  const auto sum = S::add(a, all<S>(constant));
  return {sum, S::sub(a, S::sub(sum, all<S>(constant)))};
}
template <class S>
ISOBIT_INLINE Two<S> product(VectorOf<S> a, VectorOf<S> b) {
  const auto head = S::mul(a, b);
  return {head, S::fma(a, b, negative<S>(head))};
}
template <class S>
ISOBIT_INLINE Two<S> product(const Two<S>& a, VectorOf<S> b) {
  const Two<S> exact = product<S>(a.head, b);
  return {exact.head, S::fma(a.rest, b, exact.rest)};
}
template <class S>
ISOBIT_INLINE Two<S> product(const Two<S>& a, const Two<S>& b) {
  const Two<S> exact = product<S>(a.head, b.head);
  return {exact.head, S::fma(a.rest, b.head, S::fma(a.head, b.rest, exact.rest))};
}
// x^n, by squares, of a whole n that is not negative.
template <class S>
ISOBIT_INLINE Two<S> power(const Two<S>& x, std::int64_t n) {
  Two<S> result{all<S>(1), all<S>(0)};
  for (int bit = 62; bit >= 0; --bit) {
    if (n >> bit == 0) continue;
    const Two<S> square = product<S>(result, result);
    result = ordered_sum<S>(square.head, square.rest);
    if ((n >> bit & 1) == 0) continue;
    const Two<S> times_x = product<S>(result, x);
    result = ordered_sum<S>(times_x.head, times_x.rest);
  }
  return result;
}
// a / b, nearly as if a and b were one number each: with one division.
template <class S>
ISOBIT_INLINE Two<S> quotient(const Two<S>& a, const Two<S>& b) {
  const auto inverse = S::div(all<S>(1), b.head);
  const auto head = S::mul(a.head, inverse);
  const auto left = S::minus_product(head, b.head, a.head);
  return {head, S::mul(S::minus_product(head, b.rest, S::add(left, a.rest)), inverse)};
}
template <class S>
ISOBIT_INLINE VectorOf<S> rounded(const Two<S>& x) {
  return S::add(x.head, x.rest);
}

}  // namespace isobit::functions
