// SPDX-License-Identifier: Apache-2.0
// One element, with the operations that formulas are written in.
#pragma once

#include <cmath>

#include "isobit/core/inline.h"
#include "isobit/core/scalar_operations.h"

namespace isobit::tile {

template <class Number>
struct Scalar : ScalarOperations<Number> {
  using Real = Number;
  using V = Number;

  ISOBIT_INLINE static V all(Real value) { return value; }
  ISOBIT_INLINE static V add(V a, V b) { return a + b; }
  ISOBIT_INLINE static V sub(V a, V b) { return a - b; }
  ISOBIT_INLINE static V mul(V a, V b) { return a * b; }
  ISOBIT_INLINE static V fma(V a, V b, V c) { return std::fma(a, b, c); }
  ISOBIT_INLINE static V minus_product(V a, V b, V c) { return std::fma(-a, b, c); }  // c - a*b
};

}  // namespace isobit::tile
