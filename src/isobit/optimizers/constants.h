// SPDX-License-Identifier: Apache-2.0
// The numbers of a step that no element has a part in, by operations that every machine rounds
// alike: the C library's pow is not among them.
#pragma once

#include <cmath>
#include <cstdint>

namespace isobit::optimizers {

// 1 - beta^step, for beta in [0, 1) and step > 0, by squaring: of two powers a and b with
// complements A and B, ab has A + B (1 - A). No difference of numbers that are nearly equal is
// taken, so each of about 3 log2(step) roundings is one of the result.
inline double complement_of_power(double beta, std::int64_t step) {
  double square = 1 - beta, found = 0;
  for (;;) {
    if ((step & 1) != 0) found = std::fma(square, 1 - found, found);
    step >>= 1;
    if (step == 0) return found;
    square = std::fma(-square, square, 2 * square);
  }
}

}  // namespace isobit::optimizers
