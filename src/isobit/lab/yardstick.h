// SPDX-License-Identifier: Apache-2.0
// The yardstick C: how far a result lies from the true one, in units of rounding of the terms that
// made it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "isobit/lab/array.h"
#include "isobit/lab/limits.h"

namespace isobit::lab {

inline constexpr double kTolerance = 8;  // the largest C that passes
inline constexpr double kWrong =
    1e300;  // the C of what no rounding explains; finite, so that JSON can hold it

// One element's distance from the truth.
struct Distance {
  double c = 0, abs = 0, ulp = 0;
};

// The worst of many elements, and where the worst C was met.
struct Deviation {
  double c = 0, max_abs = 0, max_ulp = 0;
  std::int64_t row = 0, col = 0;
  double expected = 0, actual = 0, ulp = 0;  // there

  bool passed() const { return c <= kTolerance; }
  void merge(const Deviation& other);
};

// `scale` is the sum of the magnitudes that the element's rounding errors are proportional to.
template <class T, class Real>
Distance distance(T actual, Real exact, Real scale);

// Elements of one row of `actual`, from `first_col` on, against the truth.
template <class Real>
void measure(const Array& actual, std::int64_t row, std::int64_t first_col,
             std::span<const Real> exact, std::span<const Real> scale, Deviation& worst);

}  // namespace isobit::lab
