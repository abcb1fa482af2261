// SPDX-License-Identifier: Apache-2.0
// A plan: the values of a variant's knobs. Plans change speed and memory, never a bit of the
// result.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace isobit {

inline constexpr int kMaxKnobs = 6;

struct Knob {
  std::string_view name;
  std::span<const int> values;  // every value that may be chosen
  std::string_view meaning;
};

// Values in the order of the variant's knobs.
using Plan = std::array<int, kMaxKnobs>;

}  // namespace isobit
