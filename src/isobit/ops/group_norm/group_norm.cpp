// SPDX-License-Identifier: Apache-2.0
// The group_norm operator: its arguments, and its public functions.
#include "isobit/ops/group_norm/group_norm.h"

#include "isobit/ops/channel_norm/definition.h"

namespace isobit::group_norm {
namespace {

using channel_norm::BackwardProblem;
using channel_norm::ForwardProblem;

template <class Args>
constexpr Dim kDims[] = {
    {.name = "batch", .usual = 2, .in_parity = 7, .batch = true},
    {.name = "channels", .usual = 32, .in_parity = 12},
    {.name = "extent", .usual = 1024, .in_parity = 75},
    {.name = "groups_of_channels",
     .derived = [](const Extents&, const void* args) -> std::int64_t {
       return static_cast<const Args*>(args)->groups;
     }},
    channel_norm::kNumbers,
};

template <class Args>
constexpr Option kOptions[] = {
    option<&Args::groups>("groups", 1)
        .changing_plans(PlanDependence::value)
        .defaulting_at_zero()
        .means("of an image, which share its channels evenly"),
    channel_norm::kEps<Args>,
};

constexpr Argument kForwardArguments[] = {
    channel_norm::kXArgument<ForwardArgs>,
    channel_norm::kWeight<ForwardArgs>,
    channel_norm::kBias<ForwardArgs>,
    channel_norm::kY<ForwardArgs>,
    argument<&ForwardArgs::mean>("mean", Role::output, "batch groups_of_channels",
                                 Elements::statistic, Presence::optional)
        .with_any_strides()
        .means("(batch, groups) in f32 (f64 beside f64), or NULL; of any strides"),
    argument<&ForwardArgs::rstd>("rstd", Role::output, "batch groups_of_channels",
                                 Elements::statistic, Presence::optional)
        .with_any_strides()
        .means("like mean, or NULL; 1 / sqrt(variance + eps)"),
    channel_norm::moments<ForwardArgs>("batch groups_of_channels numbers"),
};
constexpr Argument kBackwardArguments[] = {
    channel_norm::kXArgument<BackwardArgs>,
    channel_norm::kGradY<BackwardArgs>,
    channel_norm::kWeight<BackwardArgs>,
    channel_norm::kGradX<BackwardArgs>,
    channel_norm::kGradWeight<BackwardArgs>,
    channel_norm::kGradBias<BackwardArgs>,
    channel_norm::given_moments<BackwardArgs>("batch groups_of_channels numbers"),
};

template <class Args>
Extents extents(const Args& args) {
  Extents result = channel_norm::extents_of(args.x);
  result[3] = args.groups;
  result[4] = channel_norm::kMoments;
  return result;
}

const Definition<ForwardArgs, ForwardProblem>& forward_definition() {
  static const Definition<ForwardArgs, ForwardProblem> kDefinition = [] {
    auto definition = channel_norm::forward_definition<ForwardArgs>("group_norm");
    definition.summary =
        "y = (x - mean) / sqrt(variance + eps) * weight + bias, with mean and variance of each "
        "group of adjacent channels of an image, and a weight and a bias for each channel.";
    definition.dims = kDims<ForwardArgs>;
    definition.arguments = kForwardArguments;
    definition.options = kOptions<ForwardArgs>;
    definition.extents = extents<ForwardArgs>;
    return definition;
  }();
  return kDefinition;
}

const Definition<BackwardArgs, BackwardProblem>& backward_definition() {
  static const Definition<BackwardArgs, BackwardProblem> kDefinition = [] {
    auto definition = channel_norm::backward_definition<BackwardArgs>("group_norm");
    definition.summary =
        "The gradients of group_norm_forward. The statistics are those of the moments that forward "
        "gave or, without them, computed from x again.";
    definition.dims = kDims<BackwardArgs>;
    definition.arguments = kBackwardArguments;
    definition.options = kOptions<BackwardArgs>;
    definition.extents = extents<BackwardArgs>;
    return definition;
  }();
  return kDefinition;
}

}  // namespace

void forward(const ForwardArgs& args, const Execution& execution) {
  run(forward_definition(), args, execution);
}
void backward(const BackwardArgs& args, const Execution& execution) {
  run(backward_definition(), args, execution);
}

const Operation& forward_operation() {
  static const TypedOperation<ForwardArgs, ForwardProblem> kOperation(forward_definition());
  return kOperation;
}
const Operation& backward_operation() {
  static const TypedOperation<BackwardArgs, BackwardProblem> kOperation(backward_definition());
  return kOperation;
}

}  // namespace isobit::group_norm
