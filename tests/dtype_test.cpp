// SPDX-License-Identifier: Apache-2.0
// The conversions of core/dtype.h, over every 16-bit value and around every rounding boundary.
#include "isobit/core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace isobit {
namespace {

// What a 16-bit type's value is, computed from its fields in double.
double value_of(std::uint32_t bits, int mantissa_bits, int bias) {
  const int exponent_bits = 15 - mantissa_bits;
  const int exponent = static_cast<int>(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
  const double mantissa = bits & ((1u << mantissa_bits) - 1);
  const double sign = bits & 0x8000u ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa == 0 ? sign * INFINITY : std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(1 + std::ldexp(mantissa, -mantissa_bits), exponent - bias);
}

template <class T>
void check_every_value(int mantissa_bits, int bias, std::uint16_t nan) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const T value{static_cast<std::uint16_t>(bits)};
    const double expected = value_of(bits, mantissa_bits, bias);
    const float widened = to_float(value);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(widened)) << bits;
      ASSERT_EQ(from_float<T>(widened).bits, nan) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(widened), expected) << bits;
    ASSERT_EQ(from_float<T>(widened).bits, bits);
    // Half way to the next value away from zero: ties go to the even one, all else to the nearer
    // one.
    if (std::isinf(expected)) continue;
    const double next = value_of(bits + 1, mantissa_bits, bias);
    const double step = std::isinf(next)
                            ? std::fabs(expected - value_of(bits - 1, mantissa_bits, bias))
                            : std::fabs(next - expected);
    const auto half = static_cast<float>(std::fabs(expected) + step / 2);
    const float sign = bits & 0x8000u ? -1.0f : 1.0f;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(from_float<T>(sign * half).bits, even) << bits;
    ASSERT_EQ(from_float<T>(sign * std::nextafter(half, 0.0f)).bits, bits);
    ASSERT_EQ(from_float<T>(sign * std::nextafter(half, INFINITY)).bits, bits + 1);
  }
}

TEST(DType, EveryBf16RoundTripsAndRoundsToNearestEven) {
  check_every_value<bf16>(7, 127, kNanBf16);
}
TEST(DType, EveryF16RoundTripsAndRoundsToNearestEven) { check_every_value<f16>(10, 15, kNanF16); }

TEST(DType, NanBecomesCanonical) {
  for (std::uint32_t bits : {0x7f800001u, 0xffc00000u, 0x7fffffffu, 0xff800123u}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(from_float<float>(nan)), kNanF32);
    EXPECT_EQ(from_float<bf16>(nan).bits, kNanBf16);
    EXPECT_EQ(from_float<f16>(nan).bits, kNanF16);
  }
}

}  // namespace
}  // namespace isobit
