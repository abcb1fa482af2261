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

inline constexpr double kWrong =
    1e300;  // the C of what no rounding explains; finite, so that JSON can hold it

// One element's distance from the truth.
struct Distance {
  double c = 0, abs = 0, ulp = 0;
};

// The worst of many elements, and where the worst C was met.
struct Deviation {
  double c = 0, max_abs = 0, max_ulp = 0;
  std::int64_t line = 0, place = 0;
  double expected = 0, actual = 0, ulp = 0;  // there

  void merge(const Deviation& other);
};

// `scale` is the sum of the magnitudes that the element's rounding errors are proportional to. A
// NaN must be the canonical one unless it may be any.
template <class T, class Real>
Distance distance(T actual, Real exact, Real scale, bool any_nan = false);

// Elements of one line of `actual`, from `first` on, against the truth.
template <class Real>
void measure(const Array& actual, std::int64_t line, std::int64_t first,
             std::span<const Real> exact, std::span<const Real> scale, Deviation& worst,
             bool any_nan = false);

}  // namespace isobit::lab
