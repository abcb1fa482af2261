// SPDX-License-Identifier: Apache-2.0
// exp and exp2.
#pragma once

#include "isobit/functions/arithmetic.h"

namespace isobit::functions {

template <class Real>
struct Logarithms;  // of 2, and of e to base 2, each as a sum of two numbers
template <>
struct Logarithms<float> {
  static constexpr float kLn2 = 0x1.62e43p-1f, kLn2Rest = -0x1.05c61p-29f;
  static constexpr float kLog2E = 0x1.715476p0f, kLog2ERest = 0x1.4ae0cp-26f;
};
template <>
struct Logarithms<double> {
  static constexpr double kLn2 = 0x1.62e42fefa39efp-1, kLn2Rest = 0x1.abc9e3b39803fp-56;
  static constexpr double kLog2E = 0x1.71547652b82fep0, kLog2ERest = 0x1.777d0ffda0d24p-56;
};

// e^x = 2^exponent * (1 + head + rest). Where the exponent is 0, head + rest is e^x - 1 to
// its last places.
template <class S>
struct Exponential {
  VectorOf<S> head, rest, exponent;
};

// Of x + low, whose magnitude times log2 e is below 2^20.
template <class S>
ISOBIT_INLINE Exponential<S> exponential(VectorOf<S> x, VectorOf<S> low) {
  using Real = typename S::Real;
  using L = Logarithms<Real>;
  const auto rounder = S::all(Format<Real>::kRounder);
  const auto n = S::sub(S::fma(x, S::all(L::kLog2E), rounder), rounder);
  // Exact: the product is not rounded, and the difference is a multiple of both last places.
  const auto coarse = S::minus_product(n, S::all(L::kLn2), x);
  const auto shift = S::minus_product(n, S::all(L::kLn2Rest), low);
  const auto r = S::add(coarse, shift);
  VectorOf<S> series;  // (e^r - 1 - r) / r^2
  if constexpr (kSingle<S>)
    series =
        polynomial<S>(r, 0x1p-1f, 0x1.5554aap-3f, 0x1.5554d4p-5f, 0x1.122cc6p-7f, 0x1.6d6524p-10f);
  else
    series = polynomial<S>(r, 0x1p-1, 0x1.5555555555559p-3, 0x1.5555555555559p-5,
                           0x1.111111110f5a4p-7, 0x1.6c16c16c147c4p-10, 0x1.a01a01b07b46cp-13,
                           0x1.a01a01b053799p-16, 0x1.71ddf67fa9f6ap-19, 0x1.27e4c5abebe33p-22,
                           0x1.af627278abc9bp-26, 0x1.1f9611019bc4cp-29);
  const auto square = S::mul(r, r);
  if constexpr (kExact<S>)
    return {r, S::fma(square, series, S::add(S::sub(coarse, r), shift)), n};
  else
    return {r, S::mul(square, series), n};
}

// e^x, not rounded to its range: it may be a factor of what is inside. x is at least -200 (f32) or
// -1470 (f64): what is below that is zero, whatever it is multiplied by.
template <class S>
ISOBIT_INLINE Scaled<S> scaled_exp(VectorOf<S> x) {
  if constexpr (!kUsual<S>)
    x = at_least<S>(at_most<S>(x, kSingle<S> ? 200 : 1470), kSingle<S> ? -200 : -1470);
  const Exponential<S> e = exponential<S>(x, all<S>(0));
  const auto value = S::add(all<S>(1), S::add(e.head, e.rest));
  return {kUsual<S> ? S::mul(value, power<S>(e.exponent)) : value, e.exponent};
}

template <class S>
ISOBIT_INLINE VectorOf<S> exp(VectorOf<S> x) {
  // Beyond, every number is zero or infinite, and the factors of number() are still powers of two.
  return number<S>(scaled_exp<S>(at_most<S>(x, kSingle<S> ? 89 : 710)));
}

// 2^f of a fraction of magnitude 1/2 at most, or not much more.
template <class S>
ISOBIT_INLINE VectorOf<S> exp2_of_fraction(VectorOf<S> f) {
  VectorOf<S> series;  // (2^f - 1) / f
  if constexpr (kSingle<S>)
    series = polynomial<S>(f, 0x1.62e43p-1f, 0x1.ebfbep-3f, 0x1.c6af76p-5f, 0x1.3b2a3cp-7f,
                           0x1.5f0becp-10f, 0x1.44322cp-13f);
  else
    series = polynomial<S>(f, 0x1.62e42fefa39efp-1, 0x1.ebfbdff82c58fp-3, 0x1.c6b08d704a1d1p-5,
                           0x1.3b2ab6fba4d79p-7, 0x1.5d87fe787564p-10, 0x1.430912f8aab2ep-13,
                           0x1.ffcbfd420d067p-17, 0x1.62c021616b9d3p-20, 0x1.b523445246c42p-24,
                           0x1.e4d1fa2e986e3p-28, 0x1.ec520cca5ca32p-32, 0x1.c0fe9742d48d5p-36);
  return S::fma(series, f, all<S>(1));
}

template <class S>
ISOBIT_INLINE VectorOf<S> exp2(VectorOf<S> x) {
  using Real = typename S::Real;
  x = at_least<S>(at_most<S>(x, kSingle<S> ? 129 : 1025), kSingle<S> ? -160 : -1100);
  const auto rounder = S::all(Format<Real>::kRounder);
  const auto n = S::sub(S::add(x, rounder), rounder);
  return number<S>({exp2_of_fraction<S>(S::sub(x, n)), n});
}

}  // namespace isobit::functions
