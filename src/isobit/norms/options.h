// SPDX-License-Identifier: Apache-2.0
// How norms describe their arguments and options.
#pragma once

#include <array>

#include "isobit/dispatch/operation.h"

namespace isobit::norms {

namespace described {

inline constexpr auto kInput = Role::input;
inline constexpr auto kOutput = Role::output;
inline constexpr auto kMatrix = Extent::matrix;
inline constexpr auto kPerColumn = Extent::row_vector;
inline constexpr auto kPerRow = Extent::row_statistic;
inline constexpr auto kLikeX = Elements::like_x;
inline constexpr auto kLikeWeight = Elements::like_weight;
inline constexpr auto kLikeY = Elements::like_y;
inline constexpr auto kStatistic = Elements::statistic;
inline constexpr auto kRequired = Presence::required;
inline constexpr auto kOptional = Presence::optional;
inline constexpr auto kExtra = Presence::extra;

}  // namespace described

inline constexpr std::string_view kNoYes[] = {"no", "yes"};

template <class Args>
constexpr std::array<Option, 4> options() {
  return {option<&Args::eps>("eps", 1e-5), option<&Args::zero_centred>("zero_centred", 0, kNoYes),
          option<&Args::dropout>("dropout", 0, {}, true),
          option<&Args::dropout_seed>("dropout_seed", 0)};
}

}  // namespace isobit::norms
