// SPDX-License-Identifier: Apache-2.0
// What operators that compute losses of logits have in common in their descriptions.
#pragma once

#include <cstdint>
#include <string_view>

#include "isobit/dispatch/description.h"

namespace isobit::cross_entropy {

inline constexpr Dim kOne = {
    .name = "one", .derived = [](const Extents&, const void*) -> std::int64_t { return 1; }};

// Still without the dim that counts classes.
template <class Args>
constexpr Argument kTarget = argument<&Args::target>("target", Role::input, "rows", Elements::index,
                                                     Presence::required, Drawn::index)
                                 .means("a class for each row in i64, or ignore_index; adjacent");

template <auto kMember>
constexpr Argument weight_of_classes(std::string_view name, std::string_view classes) {
  return argument<kMember>(name, Role::input, classes, Elements::statistic, Presence::extra,
                           Drawn::weight)
      .means("of each class in f32 (f64 beside f64), or NULL; adjacent");
}

// Of forward.
template <class Args>
constexpr Argument kLoss =
    argument<&Args::loss>("loss", Role::output, "rows", Elements::statistic, Presence::required)
        .means("for each row in f32 (f64 beside f64); adjacent");
template <class Args>
constexpr Argument kLse =
    argument<&Args::lse>("lse", Role::output, "rows", Elements::statistic, Presence::extra)
        .means("like loss, or NULL; the logarithm of the sum of exp(logit)");
template <class Args>
constexpr Argument kLargest = argument<&Args::largest>("largest", Role::output, "rows",
                                                       Elements::statistic, Presence::optional)
                                  .means("like loss, or NULL; for backward: the largest logit");
template <class Args>
constexpr Argument kSum =
    argument<&Args::sum>("sum", Role::output, "rows", Elements::statistic, Presence::optional)
        .means("like loss, or NULL; for backward: the sum of exp(logit - largest)");
template <class Args>
constexpr Argument kTotal =
    argument<&Args::total>("total", Role::output, "one", Elements::statistic, Presence::optional)
        .means("one element like loss's, or NULL; the sum of loss");
template <class Args>
constexpr Argument kCount =
    argument<&Args::count>("count", Role::output, "one", Elements::statistic, Presence::optional)
        .means("like total, or NULL; the sum of the targets' weights: total / count is the mean");

// Of backward.
template <class Args>
constexpr Argument kGradLoss =
    argument<&Args::grad_loss>("grad_loss", Role::input, "rows", Elements::statistic,
                               Presence::required, Drawn::gradient)
        .means("for each row in f32 (f64 beside f64); adjacent");
template <class Args>
constexpr Argument kGivenLargest =
    argument<&Args::largest>("largest", Role::input, "rows", Elements::statistic,
                             Presence::required, Drawn::produced)
        .means("as forward gave it");
template <class Args>
constexpr Argument kGivenSum = argument<&Args::sum>("sum", Role::input, "rows", Elements::statistic,
                                                    Presence::required, Drawn::produced)
                                   .means("as forward gave it");

template <class Args>
inline constexpr Option kOptions[] = {
    option<&Args::ignore_index>("ignore_index", -100)
        .means("rows of this target have no part in any loss; -100 for none"),
    option<&Args::label_smoothing>("label_smoothing", 0)
        .means("0 to 1: the part of the loss that all classes share"),
    option<&Args::z_loss>("z_loss", 0).means("the factor of lse^2; 0 for none"),
};

}  // namespace isobit::cross_entropy
