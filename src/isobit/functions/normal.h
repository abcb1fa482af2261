// SPDX-License-Identifier: Apache-2.0
// The normal distribution's functions: erf, erfc, GELU and its derivative.
//
// A tail is e^(-a^2 / 2) G(a), G(a) = erfcx(a / sqrt 2) / 2, with the square in two parts: its
// error would be multiplied by as much as the square is large.
#pragma once

#include "isobit/functions/exponential.h"

namespace isobit::functions {

namespace detail {

template <class Real>
struct Normal;
template <>
struct Normal<float> {
  static constexpr float kRoot2 = 0x1.6a09e6p0f, kRoot2Rest = 0x1.9fcef4p-26f;
  static constexpr float kDensity = 0x1.988454p-2f;  // 1 / sqrt(2 pi)
  static constexpr float kCenter = 1.171875f;
  static constexpr float kFarthest = 19.75f;  // what lies there times any number is 0
  static constexpr float kFarthestErfc = 10.5f;
};
template <>
struct Normal<double> {
  static constexpr double kRoot2 = 0x1.6a09e667f3bcdp0, kRoot2Rest = -0x1.bdd3413b26456p-54;
  static constexpr double kDensity = 0x1.9884533d43651p-2;
  static constexpr double kCenter = 1.0625;
  static constexpr double kFarthest = 54;
  static constexpr double kFarthestErfc = 27.5;
};

// G(a) of an a that is not negative, and at most kFarthest.
template <class S>
ISOBIT_INLINE Two<S> half_erfcx(const Two<S>& a) {
  using N = Normal<typename S::Real>;
  const Two<S> sum = sum_with<S>(a.head, 4);
  const auto d = sum.head, d_rest = S::add(sum.rest, a.rest);
  const auto t = S::div(all<S>(1), d);
  const auto v = S::minus_product(t, all<S>(8), S::all(N::kCenter));
  // G (a + 4) = first + v (second + v series), where the last terms matter least.
  VectorOf<S> first, second, series;
  if constexpr (kSingle<S>) {
    first = S::all(0x1.be919ap-1f);
    second = S::all(-0x1.847c6p-1f);
    series = polynomial<S>(v, 0x1.fa3692p-2f, -0x1.d6c5ap-3f, 0x1.0a8498p-4f, -0x1.8a68d2p-9f,
                           -0x1.591648p-8f, 0x1.3f0cecp-10f, 0x1.008c36p-11f, -0x1.4b02dp-13f,
                           -0x1.ef9028p-15f);
  } else {
    first = S::all(0x1.96f4ed39ab6b5p-1);
    second = S::all(-0x1.512b638cef184p-1);
    series = polynomial<S>(v, 0x1.b1b55aa919f37p-2, -0x1.9d7c88d4d56dcp-3, 0x1.0024f126840bp-4,
                           -0x1.9004a3e28ffe6p-8, -0x1.1189f8c42c023p-8, 0x1.9192bf4171916p-10,
                           0x1.124dc61e4b25bp-12, -0x1.d284a4eb0c91p-13, -0x1.ab8cda4cac582p-16,
                           0x1.13cf4489dd6a2p-15, 0x1.5cb0ce240ca69p-18, -0x1.4ef50bce2368dp-18,
                           -0x1.80cbe1842130cp-20, 0x1.6e96c77d252b4p-21, 0x1.9349aaed492d8p-22,
                           -0x1.c227e47bf1a64p-25, -0x1.51ffcb31405f1p-24, -0x1.7f888c5786bb3p-27,
                           0x1.384c680994f6cp-27, 0x1.8bc114547485ep-28, 0x1.ebe2859edc667p-31,
                           -0x1.039121979bc07p-30, -0x1.bb476f99f36b1p-32);
  }
  // v belongs to 1 / t - 4, which is not quite a. G' = a G - density.
  const auto missed = S::minus_product(t, d_rest, S::minus_product(t, d, all<S>(1)));
  const auto distance = S::mul(missed, d);
  if constexpr (kExact<S>) {
    const Two<S> w = product<S>(ordered_sum<S>(second, S::mul(v, series)), v);
    const Two<S> h = ordered_sum<S>(first, w.head);
    const Two<S> g = product<S>(Two<S>{h.head, S::add(h.rest, w.rest)}, t);
    const auto slope = S::fma(a.head, g.head, S::all(-N::kDensity));
    return {g.head, S::minus_product(slope, distance, g.rest)};
  } else {
    const Two<S> g = product<S>(S::fma(v, S::fma(v, series, second), first), t);
    const auto slope = S::fma(a.head, g.head, S::all(-N::kDensity));
    return {S::add(g.head, S::minus_product(slope, distance, g.rest)), all<S>(0)};
  }
}

// e^-exponent of an exponent in two parts, times `factor`.
template <class S>
ISOBIT_INLINE Scaled<S> tail(const Two<S>& exponent, const Two<S>& factor) {
  const Exponential<S> e = exponential<S>(negative<S>(exponent.head), negative<S>(exponent.rest));
  const auto power_less_one = S::add(e.head, e.rest);
  if constexpr (kExact<S>) {
    const Two<S> sum = ordered_sum<S>(all<S>(1), e.head);
    const Two<S> result = product<S>(Two<S>{sum.head, S::add(sum.rest, e.rest)}, factor);
    return {rounded<S>(result), e.exponent};
  } else {
    return {S::fma(factor.head, power_less_one, factor.head), e.exponent};
  }
}

template <class S>
ISOBIT_INLINE Two<S> half_square(VectorOf<S> a) {
  const Two<S> square = product<S>(a, a);
  return {S::mul(square.head, all<S>(0.5)), S::mul(square.rest, all<S>(0.5))};
}

// erfc of |x|.
template <class S>
ISOBIT_INLINE Scaled<S> erfc_of_magnitude(VectorOf<S> x) {
  using N = Normal<typename S::Real>;
  const auto z = at_most<S>(magnitude<S>(x), N::kFarthestErfc);
  const Two<S> a = product<S>(Two<S>{S::all(N::kRoot2), S::all(N::kRoot2Rest)}, z);
  const Two<S> g = half_erfcx<S>(a);
  const Two<S> whole{S::add(g.head, g.head), S::add(g.rest, g.rest)};
  return tail<S>(product<S>(z, z), whole);
}

}  // namespace detail

template <class S>
ISOBIT_INLINE VectorOf<S> erfc(VectorOf<S> x) {
  const Scaled<S> small = detail::erfc_of_magnitude<S>(x);
  const auto other = S::minus_product(small.value, power_beside_one<S>(small.exponent), all<S>(2));
  const auto below = S::less(x, all<S>(0));
  return number<S>(
      {S::choose(below, other, small.value), S::choose(below, all<S>(0), small.exponent)});
}

// Near 0 a polynomial, since 1 - erfc would lose digits.
template <class S>
ISOBIT_INLINE VectorOf<S> erf(VectorOf<S> x) {
  const auto a = magnitude<S>(x);
  const auto z = S::mul(a, a);
  VectorOf<S> series;  // erf(a) / a - 1
  if constexpr (kSingle<S>)
    series = polynomial<S>(z, 0x1.06eba8p-3f, -0x1.81273ep-2f, 0x1.ce2cecp-4f, -0x1.b7f7fp-6f,
                           0x1.53fbd8p-8f, -0x1.a3ac5ep-11f, 0x1.489c72p-14f);
  else
    series = polynomial<S>(z, 0x1.06eba8214db69p-3, -0x1.812746b037a2dp-2, 0x1.ce2f21a0465fdp-4,
                           -0x1.b82ce313bc1dbp-6, 0x1.565bcd43a5ad8p-8, -0x1.c02dbf0687a0ap-11,
                           0x1.f9a49f66b0893p-14, -0x1.f4f41559bb5e8p-17, 0x1.bbf919867addcp-20,
                           -0x1.75d911337cc4bp-23, 0x1.a1fd53a95c272p-26, -0x1.d6413a25f21d5p-28,
                           0x1.15e07e7132d18p-29, -0x1.487d289c326ddp-32);
  const auto near = S::fma(a, series, a);
  const Scaled<S> small = detail::erfc_of_magnitude<S>(x);
  const auto far = S::minus_product(small.value, power_beside_one<S>(small.exponent), all<S>(1));
  return with_sign<S>(S::choose(S::less(a, all<S>(1)), near, far), x);
}

// x times the normal distribution's integral up to x. For x > 0: x - |gelu(-x)|.
template <class S>
ISOBIT_INLINE Scaled<S> gelu(VectorOf<S> x) {
  using N = detail::Normal<typename S::Real>;
  const auto a = kUsual<S> ? magnitude<S>(x) : at_most<S>(magnitude<S>(x), N::kFarthest);
  const Two<S> g = detail::half_erfcx<S>(Two<S>{a, all<S>(0)});
  Two<S> factor;
  if constexpr (kExact<S>)
    factor = product<S>(g, a);
  else
    factor = {S::mul(g.head, a), all<S>(0)};
  const Scaled<S> small = detail::tail<S>(detail::half_square<S>(a), factor);
  return positive_part_less<S>(x, small, power_beside_one<S>(small.exponent));
}

// The integral plus x times the density. For x > 0: 1 - gelu'(-x).
template <class S>
ISOBIT_INLINE Scaled<S> gelu_derivative(VectorOf<S> x) {
  using N = detail::Normal<typename S::Real>;
  const auto a = kUsual<S> ? magnitude<S>(x) : at_most<S>(magnitude<S>(x), N::kFarthest);
  const Two<S> g = detail::half_erfcx<S>(Two<S>{a, all<S>(0)});
  const auto difference = S::add(S::minus_product(a, S::all(N::kDensity), g.head), g.rest);
  const Scaled<S> small = detail::tail<S>(detail::half_square<S>(a), Two<S>{difference, all<S>(0)});
  return small_or_one_less<S>(x, small, power_beside_one<S>(small.exponent));
}

}  // namespace isobit::functions
