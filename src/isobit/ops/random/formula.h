// SPDX-License-Identifier: Apache-2.0
// From a seed and a place to a number, on every back end: words of Philox, then f64, then y's type.
// S offers the operations of simd's F64.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "isobit/core/dtype.h"
#include "isobit/core/odd.h"
#include "isobit/norms/philox.h"
#include "isobit/ops/random/formula_normal.h"
#include "isobit/ops/random/random.h"

namespace isobit::random {

// The last word of every counter: dropout's masks, whose counters are rows, never have it.
inline constexpr std::uint32_t kStream = 0x80000000u;

using Words = std::array<std::uint32_t, 4>;

// Of the numbers 4 group to 4 group + 3 of a sequence, modulo 2^64: the first words, and by `which`
// 1 the second ones, which f64 has.
ISOBIT_INLINE Words words_of(std::uint64_t seed, std::uint64_t group, std::uint32_t which) {
  group &= ~std::uint64_t{0} >> 2;
  return norms::philox(
      {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32), which, kStream},
      seed);
}

// y's type has the value, rounded once.
template <class T>
ISOBIT_INLINE T stored(double value) {
  if constexpr (sizeof(T) == 2)
    return from_float<T>(round_to_odd(value));
  else
    return narrow<T>(value);
}
template <class T>
ISOBIT_INLINE double rounded_to(double value) {
  return widen<std::conditional_t<sizeof(T) == 8, double, float>>(stored<T>(value));
}

// The largest number of the type below one of its own.
template <class T>
ISOBIT_INLINE double previous(double value) {
  using Word = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
  constexpr Word kSign = static_cast<Word>(Word{1} << (8 * sizeof(T) - 1));
  Word bits = std::bit_cast<Word>(stored<T>(value));
  if (value == 0)
    bits = static_cast<Word>(kSign | 1u);
  else
    bits = static_cast<Word>((bits & kSign) != 0 ? bits + 1u : bits - 1u);
  return widen<std::conditional_t<sizeof(T) == 8, double, float>>(std::bit_cast<T>(bits));
}

// What all elements of a call share.
struct Constants {
  Distribution distribution;
  std::uint64_t seed, offset;
  double least, most;            // of what is stored, in uniform and truncated_normal
  double span;                   // of uniform
  double mean, std;              // of normal and truncated_normal
  double below, above, between;  // what truncated_normal leaves out on either side, and has left
  double ones;                   // bernoulli: draws below it become 1
};

template <class S, class T>
ISOBIT_INLINE Constants constants_of(const Args& args) {
  Constants c{args.distribution,
              args.random_seed,
              args.random_offset,
              0,
              0,
              0,
              args.mean,
              args.std,
              0,
              0,
              1,
              0};
  const double low = rounded_to<T>(args.low), high = rounded_to<T>(args.high);
  if (c.distribution == Distribution::uniform) {
    c.least = low;
    c.span = S::sub(high, low);
    const double last = previous<T>(high);
    c.most = last > low ? last : low;  // they are one number where they are rounded to one
  } else if (c.distribution == Distribution::truncated_normal) {
    c.least = low;
    c.most = high;
    const double first = S::div(S::sub(args.low, args.mean), args.std);
    const double last = S::div(S::sub(args.high, args.mean), args.std);
    c.below = probability_below<S>(first);
    c.above = probability_below<S>(-last);
    // The smaller of what could be subtracted, so that no digits are lost.
    if (first > 0)
      c.between = S::sub(probability_below<S>(-first), c.above);
    else if (last < 0)
      c.between = S::sub(probability_below<S>(last), c.below);
    else
      c.between = S::sub(S::sub(1.0, c.below), c.above);
  } else if (c.distribution == Distribution::bernoulli) {
    c.ones = static_cast<double>(static_cast<std::uint64_t>(args.p * 0x1p32)) * 0x1p-32;
  }
  return c;
}

// Whether draws are distances from the nearer end of (0, 1), negative ones from 0 and others from
// 1, so that neither tail loses digits; else they are numbers of [0, 1).
ISOBIT_INLINE bool of_tails(Distribution distribution) {
  return distribution == Distribution::normal || distribution == Distribution::truncated_normal;
}

// A draw from one word, and in f64 a second one.
template <class T>
ISOBIT_INLINE double draw_of(Distribution distribution, std::uint32_t word, std::uint32_t more) {
  constexpr bool kWide = sizeof(T) == 8;
  if (!of_tails(distribution)) {
    const double value = static_cast<double>(word) * 0x1p-32;
    if (!kWide || distribution == Distribution::bernoulli) return value;
    return value + static_cast<double>(more >> 11) * 0x1p-53;
  }
  const bool upper = word >> 31 != 0;
  if (upper) {
    word = ~word;
    more = ~more;
  }
  const double rest = kWide ? (static_cast<double>(more) + 0.5) * 0x1p-64 : 0x1p-33;
  const double size = static_cast<double>(word) * 0x1p-32 + rest;
  return upper ? size : -size;
}

// mean + std x, of the x that a normal number is below as often as the draw says.
template <class S>
ISOBIT_INLINE VectorOf<S> normal(const Constants& c, VectorOf<S> draw) {
  const auto x = functions::with_sign<S>(number_exceeded<S>(functions::magnitude<S>(draw)), draw);
  return S::fma(S::all(c.std), x, S::all(c.mean));
}

// The same within bounds: `draw` becomes the distance from the nearer end of the whole
// distribution.
template <class S>
ISOBIT_INLINE VectorOf<S> truncated_normal(const Constants& c, VectorOf<S> draw) {
  const auto distance = functions::magnitude<S>(draw), other = S::sub(S::all(1.0), distance);
  const auto lower = S::less(draw, S::all(0.0));
  const auto between = S::all(c.between);
  const auto from_below = S::fma(S::choose(lower, distance, other), between, S::all(c.below));
  const auto from_above = S::fma(S::choose(lower, other, distance), between, S::all(c.above));
  const auto nearer = S::max(S::all(0x1p-1000), S::min(from_below, from_above));
  const auto tail =
      S::choose(S::less(from_below, from_above), functions::negative<S>(nearer), nearer);
  return S::max(S::all(c.least), S::min(S::all(c.most), normal<S>(c, tail)));
}

template <class S>
ISOBIT_INLINE VectorOf<S> number_of(const Constants& c, VectorOf<S> draw) {
  switch (c.distribution) {
    case Distribution::uniform:
      return S::min(S::all(c.most), S::fma(draw, S::all(c.span), S::all(c.least)));
    case Distribution::normal:           return normal<S>(c, draw);
    case Distribution::truncated_normal: return truncated_normal<S>(c, draw);
    case Distribution::bernoulli:        break;
  }
  return S::choose(S::less(draw, S::all(c.ones)), S::all(1.0), S::all(0.0));
}

}  // namespace isobit::random
