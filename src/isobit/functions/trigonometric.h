// SPDX-License-Identifier: Apache-2.0
// Sine and cosine in f64, for tables of rotations: of any |x| below 2^27.
#pragma once

#include "isobit/functions/arithmetic.h"

namespace isobit::functions {

template <class S>
struct SineCosine {
  VectorOf<S> sine, cosine;
};

namespace detail {

// Of x, or of x + low, where low is at most half a last place of x.
template <class S, class... Low>
ISOBIT_INLINE SineCosine<S> sine_cosine(VectorOf<S> x, Low... low) {
  static_assert(!kSingle<S>);
  constexpr double kHalfPi[] = {0x1.921fb54442d18p0, 0x1.1a62633145c07p-54,
                                -0x1.f1976b7ed8fbcp-110};
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1, kRounder = Format<double>::kRounder;
  const auto shifted = S::fma(x, S::all(kTwoOverPi), S::all(kRounder));
  const auto n = S::sub(shifted, S::all(kRounder));

  // x - n pi/2 in two parts. The first difference is exact, since its terms are multiples of a last
  // place at 1; what the second loses is found as any sum's.
  const auto coarse = S::minus_product(n, S::all(kHalfPi[0]), x);
  const Two<S> finer = product<S>(n, S::all(kHalfPi[1]));
  auto r = S::sub(coarse, finer.head);
  const auto back = S::sub(r, coarse);
  const auto missed = S::sub(S::sub(coarse, S::sub(r, back)), S::add(finer.head, back));
  auto rest = S::minus_product(n, S::all(kHalfPi[2]), S::sub(missed, finer.rest));
  if constexpr (sizeof...(Low) > 0) {  // it may be larger than r, and is larger than rest
    const Two<S> sum = any_sum<S>(r, low...);
    r = sum.head;
    rest = S::add(rest, sum.rest);
  }

  const auto z = S::mul(r, r);
  const auto cube = S::mul(z, r);
  const auto sine_series = polynomial<S>(
      z, -0x1.5555555555555p-3, 0x1.1111111111068p-7, -0x1.a01a019ffe062p-13, 0x1.71de3a33241f5p-19,
      -0x1.ae642b899038p-26, 0x1.61092de8c53d2p-33, -0x1.9fafe0d97ad25p-41);
  const auto cosine_series = polynomial<S>(
      z, 0x1.5555555555555p-5, -0x1.6c16c16c16b2bp-10, 0x1.a01a019ffb8fdp-16,
      -0x1.27e4fb5888fabp-22, 0x1.1eed6d6f380c5p-29, -0x1.9371c22fa0106p-37, 0x1.9c74454610013p-45);
  // sin(r + rest) = r + (r^3 series + rest (1 - z/2)); cos(r + rest) = 1 - z/2 + (...), with the
  // rounding error of 1 - z/2.
  const auto half = S::mul(z, all<S>(0.5));
  const auto slope = S::sub(all<S>(1), half);
  const auto sine = S::add(r, S::fma(cube, sine_series, S::mul(rest, slope)));
  const auto slope_missed = S::sub(S::sub(all<S>(1), slope), half);
  const auto small = S::fma(S::mul(z, z), cosine_series, S::minus_product(r, rest, slope_missed));
  const auto cosine = S::add(slope, small);

  // The quarter of the circle, from the last two bits of n: odd ones exchange the two.
  const auto quarter = S::bits(shifted);
  const auto two = S::all_bits(2), one = S::all_bits(1);
  const auto sign_of = [&](auto bits) {
    return S::template shift_left<62>(S::bits_and(bits, two));
  };
  const auto odd = S::less(
      all<S>(0.5), S::real(S::bits_add(S::template shift_left<52>(S::bits_and(quarter, one)),
                                       S::all_bits(0x3fe0000000000000u))));  // 1/2, or 1
  const auto first = S::choose(odd, cosine, sine), second = S::choose(odd, sine, cosine);
  return {S::real(S::bits_xor(S::bits(first), sign_of(quarter))),
          S::real(S::bits_xor(S::bits(second), sign_of(S::bits_add(quarter, one))))};
}

}  // namespace detail

template <class S>
ISOBIT_INLINE SineCosine<S> sine_cosine(VectorOf<S> x) {
  return detail::sine_cosine<S>(x);
}
template <class S>
ISOBIT_INLINE SineCosine<S> sine_cosine(const Two<S>& x) {
  return detail::sine_cosine<S>(x.head, x.rest);
}

}  // namespace isobit::functions
