// SPDX-License-Identifier: Apache-2.0
// The order of the sums of pool2d, and which element is the largest: on every back end.
#pragma once

#include <cstdint>

#include "isobit/core/inline.h"

namespace isobit::pool2d {

inline constexpr std::int64_t kPanel = 512;  // terms

// Terms in the order of their numbers, which may have gaps: each 512 from +0, and the sums of these
// from +0.
template <class Real>
struct Sum {
  Real total = 0, part = 0;
  std::int64_t panel = 0;

  ISOBIT_INLINE void add(std::int64_t number, Real value) {
    if (number / kPanel != panel) {
      total += part;
      part = 0;
      panel = number / kPanel;
    }
    part += value;
  }
  ISOBIT_INLINE Real value() const { return total + part; }
};

// Whether an element takes the place of the largest before it: the first of equal ones stays, and
// so does NaN, until the next.
template <class Real>
ISOBIT_INLINE bool larger(Real value, Real largest) {
  return value > largest || value != value;
}

}  // namespace isobit::pool2d
