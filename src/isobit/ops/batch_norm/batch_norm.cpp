// SPDX-License-Identifier: Apache-2.0
// The batch_norm operator: its arguments, and its public functions.
#include "isobit/ops/batch_norm/batch_norm.h"

#include "isobit/ops/channel_norm/definition.h"

namespace isobit::batch_norm {
namespace {

using channel_norm::BackwardProblem;
using channel_norm::ForwardProblem;

// In training every result depends on all images: none of the dims is a batch.
constexpr Dim kDims[] = {
    {.name = "batch", .usual = 2, .in_parity = 7},
    {.name = "channels", .usual = 32, .in_parity = 12},
    {.name = "extent", .usual = 1024, .in_parity = 75},
    channel_norm::kNumbers,
};

template <class Args>
constexpr Option kTraining =
    option<&Args::training>("training", 0)
        .means("statistics of x; otherwise the running ones, which then must be given");

constexpr Option kForwardOptions[] = {
    kTraining<ForwardArgs>,
    option<&ForwardArgs::momentum>("momentum", 0.1)
        .means("how much of the new statistics enters the running ones, in training"),
    channel_norm::kEps<ForwardArgs>,
};
constexpr Option kBackwardOptions[] = {
    kTraining<BackwardArgs>,
    channel_norm::kEps<BackwardArgs>,
};

template <class Args>
bool trains(const void* args) {
  return static_cast<const Args*>(args)->training;
}
bool runs(const void* args) { return !trains<BackwardArgs>(args); }

template <class Args>
Extents extents(const Args& args) {
  Extents result = channel_norm::extents_of(args.x);
  result[3] = channel_norm::kMoments;
  return result;
}

constexpr Argument kForwardArguments[] = {
    channel_norm::kXArgument<ForwardArgs>,
    channel_norm::kWeight<ForwardArgs>,
    channel_norm::kBias<ForwardArgs>,
    argument<&ForwardArgs::running_mean>("running_mean", Role::input, "channels",
                                         Elements::statistic, Presence::required, Drawn::normal)
        .means("(channels) in f32 (f64 beside f64); in training or NULL; adjacent"),
    argument<&ForwardArgs::running_var>("running_var", Role::input, "channels", Elements::statistic,
                                        Presence::required, Drawn::weight)
        .means("like running_mean"),
    channel_norm::kY<ForwardArgs>,
    argument<&ForwardArgs::mean>("mean", Role::output, "channels", Elements::statistic,
                                 Presence::optional)
        .means("like running_mean, or NULL; what was subtracted"),
    argument<&ForwardArgs::rstd>("rstd", Role::output, "channels", Elements::statistic,
                                 Presence::optional)
        .means("like running_mean, or NULL; 1 / sqrt(variance + eps)"),
    argument<&ForwardArgs::next_mean>("next_mean", Role::output, "channels", Elements::statistic,
                                      Presence::optional)
        .where(trains<ForwardArgs>)
        .means("like running_mean, or NULL; (1 - momentum) running_mean + momentum mean; may be "
               "running_mean"),
    argument<&ForwardArgs::next_var>("next_var", Role::output, "channels", Elements::statistic,
                                     Presence::optional)
        .where(trains<ForwardArgs>)
        .means(
            "like running_mean, or NULL; the same of running_var and the variance times n / (n - "
            "1); may be running_var"),
    channel_norm::moments<ForwardArgs>("channels numbers").where(trains<ForwardArgs>),
};
constexpr Argument kBackwardArguments[] = {
    channel_norm::kXArgument<BackwardArgs>,
    channel_norm::kGradY<BackwardArgs>,
    channel_norm::kWeight<BackwardArgs>,
    argument<&BackwardArgs::running_mean>("running_mean", Role::input, "channels",
                                          Elements::statistic, Presence::required, Drawn::normal)
        .where(runs)
        .means("as in forward; in training not read, or NULL"),
    argument<&BackwardArgs::running_var>("running_var", Role::input, "channels",
                                         Elements::statistic, Presence::required, Drawn::weight)
        .where(runs)
        .means("as in forward; in training not read, or NULL"),
    channel_norm::kGradX<BackwardArgs>,
    channel_norm::kGradWeight<BackwardArgs>,
    channel_norm::kGradBias<BackwardArgs>,
    channel_norm::given_moments<BackwardArgs>("channels numbers").where(trains<BackwardArgs>),
};

const Definition<ForwardArgs, ForwardProblem>& forward_definition() {
  static const Definition<ForwardArgs, ForwardProblem> kDefinition = [] {
    auto definition = channel_norm::forward_definition<ForwardArgs>("batch_norm");
    definition.summary =
        "y = (x - mean) / sqrt(variance + eps) * weight + bias for each channel: in training with "
        "mean and variance of the channel over all images, otherwise with the running ones.";
    definition.dims = kDims;
    definition.arguments = kForwardArguments;
    definition.options = kForwardOptions;
    definition.extents = extents<ForwardArgs>;
    return definition;
  }();
  return kDefinition;
}

const Definition<BackwardArgs, BackwardProblem>& backward_definition() {
  static const Definition<BackwardArgs, BackwardProblem> kDefinition = [] {
    auto definition = channel_norm::backward_definition<BackwardArgs>("batch_norm");
    definition.summary =
        "The gradients of batch_norm_forward. In training the statistics are those of the moments "
        "that forward gave or, without them, computed from x again; otherwise the running ones.";
    definition.dims = kDims;
    definition.arguments = kBackwardArguments;
    definition.options = kBackwardOptions;
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

}  // namespace isobit::batch_norm
