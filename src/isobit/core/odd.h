// SPDX-License-Identifier: Apache-2.0
// A double as a float from which a second rounding makes no second error.
#pragma once

#include <bit>
#include <cstdint>

#include "isobit/core/inline.h"

namespace isobit {

// Rounds towards zero; where that lost something, the last bit is set. A type with at least two
// bits less than float then rounds this float as it would round the double, for what was lost is
// still seen and never lies halfway. Needs a float mode that rounds to nearest and keeps
// subnormals. NaN stays NaN.
ISOBIT_INLINE float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || value != value) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  const bool beyond = value < 0 ? back < value : back > value;
  if (beyond) --bits;  // one step towards zero, from infinity too
  return std::bit_cast<float>(bits | 1u);
}

}  // namespace isobit
