// SPDX-License-Identifier: Apache-2.0
// log and log2.
#pragma once

#include <limits>

#include "isobit/functions/exponential.h"

namespace isobit::functions {

namespace detail {

// x = 2^exponent * (1 + f), with 1 + f between the roots of 1/2 and 2, and log(1 + f) = f - square
// + rest, where square is f^2 / 2 but for its rounding error, `missed`. Of positive numbers.
template <class S>
struct Logarithm {
  VectorOf<S> exponent, f, square, rest, missed;
};

template <class S>
ISOBIT_INLINE Logarithm<S> logarithm(VectorOf<S> x) {
  using Real = typename S::Real;
  using F = Format<Real>;
  using Word = typename F::Word;
  constexpr Word kOne = kSingle<S> ? 0x3f800000u : 0x3ff0000000000000u;
  constexpr Word kRootHalf = kSingle<S> ? 0x3f3504f3u : 0x3fe6a09e667f3bcdu;
  constexpr Word kFraction = (Word{1} << F::kMantissa) - 1;
  constexpr Word kInteger = kSingle<S> ? 0x4b000000u : 0x4330000000000000u;  // 2^23, 2^52
  constexpr double kOffset = kSingle<S> ? 0x1p23 + 127 : 0x1p52 + 1023;

  constexpr Real kLeastNormal = std::numeric_limits<Real>::min();
  const auto subnormal = S::less(x, S::all(kLeastNormal));
  x = S::choose(subnormal, S::mul(x, all<S>(kSingle<S> ? 0x1p24 : 0x1p53)), x);
  const auto offset =
      S::choose(subnormal, all<S>(kOffset + (kSingle<S> ? 24 : 53)), all<S>(kOffset));
  const auto shifted = S::bits_add(S::bits(x), S::all_bits(kOne - kRootHalf));
  const auto biased = S::template shift_right<F::kMantissa>(shifted);
  const auto exponent = S::sub(S::real(S::bits_add(biased, S::all_bits(kInteger))), offset);
  const auto m =
      S::real(S::bits_add(S::bits_and(shifted, S::all_bits(kFraction)), S::all_bits(kRootHalf)));

  // log(1 + f) = 2 atanh(s), s = f / (2 + f); with z = s^2, that is f - s (f - R(z)), and f^2 / 2
  // taken out of it exactly: f - square + s (square + R(z)).
  const auto f = S::sub(m, all<S>(1));
  const auto s = S::div(f, S::add(f, all<S>(2)));
  const auto z = S::mul(s, s);
  VectorOf<S> series;  // R(z) / z
  if constexpr (kSingle<S>)
    series = polynomial<S>(z, 0x1.555554p-1f, 0x1.999c26p-2f, 0x1.23d3dcp-2f, 0x1.f13c26p-3f);
  else
    series = polynomial<S>(z, 0x1.5555555555593p-1, 0x1.999999997fa54p-2, 0x1.24924942212dap-2,
                           0x1.c71c51e1c298bp-3, 0x1.746647373df84p-3, 0x1.39a0de9aa93dp-3,
                           0x1.2f0e4d9fbade8p-3);
  const auto half = S::mul(f, all<S>(0.5));
  const auto square = S::mul(half, f);
  return {exponent, f, square, S::mul(s, S::fma(z, series, square)),
          S::fma(half, f, negative<S>(square))};
}

// `result` of positive numbers; log of all others.
template <class S>
ISOBIT_INLINE VectorOf<S> logarithm_of_any(VectorOf<S> x, VectorOf<S> result) {
  using Limits = std::numeric_limits<typename S::Real>;
  constexpr auto kInfinity = Limits::infinity(), kNan = Limits::quiet_NaN();
  const auto infinity = S::all(kInfinity);
  const auto zero_or_nan = S::sub(x, infinity);  // -inf, NaN
  const auto other = S::choose(S::less(x, all<S>(0)), S::all(kNan), zero_or_nan);
  return S::choose(S::less(all<S>(0), x), S::choose(S::less(x, infinity), result, x), other);
}

}  // namespace detail

template <class S>
ISOBIT_INLINE VectorOf<S> log(VectorOf<S> x) {
  using L = Logarithms<typename S::Real>;
  const detail::Logarithm<S> l = detail::logarithm<S>(x);
  const auto rest = S::fma(l.exponent, S::all(L::kLn2Rest), l.rest);
  const auto fraction = S::sub(l.f, S::sub(l.square, rest));
  return detail::logarithm_of_any<S>(x, S::fma(l.exponent, S::all(L::kLn2), fraction));
}

template <class S>
ISOBIT_INLINE VectorOf<S> log2(VectorOf<S> x) {
  using L = Logarithms<typename S::Real>;
  const detail::Logarithm<S> l = detail::logarithm<S>(x);
  const auto head = S::sub(l.f, l.square);
  const auto rest = S::add(S::sub(S::sub(S::sub(l.f, head), l.square), l.missed), l.rest);
  const Two<S> scaled = product<S>(Two<S>{head, rest}, S::all(L::kLog2E));
  const Two<S> sum = ordered_sum<S>(l.exponent, scaled.head);
  const auto small = S::add(S::fma(head, S::all(L::kLog2ERest), scaled.rest), sum.rest);
  return detail::logarithm_of_any<S>(x, S::add(sum.head, small));
}

}  // namespace isobit::functions
