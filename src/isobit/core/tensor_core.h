// SPDX-License-Identifier: Apache-2.0
// How a tensor core adds products of 16 bits, for those who execute kernels without one. No manual
// says it: this is a published model (MMA-Sim) of sm_80 and sm_90, which no GPU has confirmed here.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "isobit/core/inline.h"

namespace isobit::tensor_core {

// What differs from one generation to the next.
struct Generation {
  int together;  // products that are added at once
  int kept;      // bits behind the point of the largest term
  int of_zero;   // the exponent that a zero counts with
};
constexpr Generation generation_of(int capability) {
  return capability >= 90 ? Generation{16, 25, -133} : Generation{8, 24, -132};
}

// A type of floats: the bits of its fraction, and the bias of its exponent.
struct Format {
  int fraction, bias, bits;
};
inline constexpr Format kF16 = {10, 15, 16}, kBf16 = {7, 127, 16}, kF32 = {23, 127, 32};

// significand * 2^(exponent - bits of the fraction), where it is finite.
struct Number {
  std::int32_t significand;  // with its sign, and its leading digit where it has one
  std::int32_t exponent;     // of the digit before the point
  bool is_nan, is_infinite, is_negative;
};

ISOBIT_INLINE Number taken_apart(std::uint32_t bits, Format format) {
  const int largest = (1 << (format.bits - 1 - format.fraction)) - 1;
  const int exponent = static_cast<int>(bits >> format.fraction) & largest;
  const auto fraction = static_cast<std::int32_t>(bits & ((1U << format.fraction) - 1));
  const bool negative = (bits >> (format.bits - 1) & 1) != 0;
  const std::int32_t size = exponent == 0 ? fraction : fraction | 1 << format.fraction;
  return {negative ? -size : size, std::max(exponent, 1) - format.bias,
          exponent == largest && fraction != 0, exponent == largest && fraction == 0, negative};
}

// +-size * 2^exponent as a float, rounded toward zero; what is too large is infinite. A float has
// 24 digits, and none behind 2^-149.
ISOBIT_INLINE float toward_zero(bool negative, std::uint64_t size, int exponent) {
  const std::uint32_t sign = negative ? 0x8000'0000U : 0;
  const int excess = std::max(static_cast<int>(std::bit_width(size)) - 24, -149 - exponent);
  if (excess > 0)
    size = excess < 64 ? size >> excess : 0;
  else
    size <<= -excess;
  exponent += excess;
  if (size >> 23 == 0) return std::bit_cast<float>(sign | static_cast<std::uint32_t>(size));
  const int biased = exponent + 150;
  if (biased > 254) return std::bit_cast<float>(sign | 0x7f80'0000U);
  return std::bit_cast<float>(sign | static_cast<std::uint32_t>(biased) << 23 |
                              static_cast<std::uint32_t>(size & 0x7f'ffff));
}

// c + a[0] * b[0] + ...: the products are exact. Every term is cut to so many bits behind the point
// of the largest, and their sum rounded toward zero.
ISOBIT_INLINE float add_together(const Number* a, const Number* b, float c, Format format,
                                 Generation generation) {
  const Number start = taken_apart(std::bit_cast<std::uint32_t>(c), kF32);
  bool invalid = start.is_nan;
  bool plus = start.is_infinite && !start.is_negative;
  bool minus = start.is_infinite && start.is_negative;
  std::int64_t products[16];
  int exponents[16];
  int largest = start.significand == 0 ? generation.of_zero : start.exponent;
  for (int i = 0; i < generation.together; ++i) {
    const Number &x = a[i], &y = b[i];
    invalid |= x.is_nan || y.is_nan;
    if (x.is_infinite || y.is_infinite) {
      invalid |= (!x.is_infinite && x.significand == 0) || (!y.is_infinite && y.significand == 0);
      const bool negative = x.is_negative != y.is_negative;
      plus |= !negative;
      minus |= negative;
    }
    products[i] = std::int64_t{x.significand} * y.significand;
    exponents[i] = products[i] == 0 ? generation.of_zero : x.exponent + y.exponent;
    largest = std::max(largest, exponents[i]);
  }
  if (invalid || (plus && minus)) return std::bit_cast<float>(0x7fff'ffffU);
  if (plus || minus)
    return minus ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
  std::int64_t sum = 0;
  const auto add = [&](std::int64_t significand, int exponent, int fraction) {
    const int shift = generation.kept - fraction - (largest - exponent);
    const auto size = static_cast<std::uint64_t>(significand < 0 ? -significand : significand);
    const auto cut = static_cast<std::int64_t>(shift >= 0    ? size << shift
                                               : shift > -63 ? size >> -shift
                                                             : 0);
    sum += significand < 0 ? -cut : cut;
  };
  if (start.significand != 0) add(start.significand, start.exponent, kF32.fraction);
  for (int i = 0; i < generation.together; ++i)
    if (products[i] != 0) add(products[i], exponents[i], 2 * format.fraction);
  if (sum == 0) return 0.0F;
  return toward_zero(sum < 0, static_cast<std::uint64_t>(sum < 0 ? -sum : sum),
                     largest - generation.kept);
}

// One element of a product of m16n8k16: a row of a, a column of b, and what they are added to.
inline constexpr int kDepth = 16;
ISOBIT_INLINE float multiply_add(const Number* a, const Number* b, float c, Format format,
                                 Generation generation) {
  for (int k = 0; k < kDepth; k += generation.together)
    c = add_together(a + k, b + k, c, format, generation);
  return c;
}

// What a sum of k products errs by at most, in u = 2^-24 of the sum of their magnitudes, where no
// factor is subnormal: matmul's README says why.
constexpr double error_of(std::int64_t k) { return 20 * static_cast<double>((k + 15) / 16); }

// The limit of C where a sum of k products is an exponent of weights, which are above and below a
// fraction, and those are added n at a time: attention's README.
constexpr double limit_of_two(std::int64_t k, std::int64_t n) {
  return 64 + 2 * error_of(k) + error_of(n);
}

// The same of attention's gradients: of two products of a pair, whose sums are added 64 pairs at a
// time, panel by panel. Shapes are (batch, heads, rows, elements).
template <class Shape>
constexpr double limit_of_gradients(const Shape& q, const Shape& k, const Shape& v) {
  constexpr std::int64_t kPanel = 64;
  const auto panels = [](std::int64_t rows) { return (rows + kPanel - 1) / kPanel; };
  const std::int64_t group = k[1] == 0 ? 1 : q[1] / k[1];
  return 64 + error_of(q[3]) + error_of(v[3]) + error_of(kPanel) +
         static_cast<double>(std::max(panels(k[2]), group * panels(q[2])));
}

}  // namespace isobit::tensor_core
