// SPDX-License-Identifier: Apache-2.0
// What a floating type can hold, as numbers, for those who judge its values from a wider type.
#pragma once

#include "isobit/core/dtype.h"

namespace isobit::lab {

struct Limits {
  int digits;        // of the significand, in bits
  int min_exponent;  // of the smallest normal number
  int max_exponent;  // of the largest number

  constexpr double largest() const { return (2 - power(1 - digits)) * power(max_exponent); }
  constexpr double smallest() const { return power(min_exponent + 1 - digits); }

  static constexpr double power(int exponent) {
    double value = 1;
    for (; exponent > 0; --exponent) value *= 2;
    for (; exponent < 0; ++exponent) value /= 2;
    return value;
  }
};

constexpr Limits limits_of(DType dtype) {
  switch (dtype) {
    case DType::f16:  return {11, -14, 15};
    case DType::bf16: return {8, -126, 127};
    case DType::f64:  return {53, -1022, 1023};
    default:          return {24, -126, 127};
  }
}

}  // namespace isobit::lab
