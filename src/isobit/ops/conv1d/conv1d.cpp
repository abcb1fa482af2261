// SPDX-License-Identifier: Apache-2.0
// The conv1d operator: the description of a convolution whose arrays have no height.
#include "isobit/ops/conv1d/conv1d.h"

#include "isobit/ops/convolution/definition.h"

namespace isobit::conv1d {
namespace {

using convolution::BackwardProblem;
using convolution::Problem;

enum Place { kBatch, kChannels, kFilters, kLength, kKernel, kGroupChannels, kOutLength };

template <class Args>
constexpr Dim kDims[] = {
    {.name = "batch", .usual = 1, .in_parity = 3, .batch = true},
    {.name = "channels", .usual = 16, .in_parity = 4},
    {.name = "filters", .usual = 16, .in_parity = 12},
    {.name = "length", .usual = 1024, .in_parity = 75},
    {.name = "kernel", .usual = 3, .in_parity = 3},
    {.name = "group_channels",
     .derived =
         [](const Extents& others, const void* args) {
           const std::int64_t groups = static_cast<const Args*>(args)->groups;
           return groups < 1 ? 0 : others[kChannels] / groups;
         }},
    {.name = "out_length",
     .derived =
         [](const Extents& others, const void* args) {
           const auto& a = *static_cast<const Args*>(args);
           return convolution::results_of(others[kLength], others[kKernel], a.stride, a.dilation,
                                          a.padding, a.extra_padding);
         }},
};

// What both passes have, and what forward has alone.
#define ISOBIT_WINDOW_OPTIONS(Args)                                                   \
  convolution::number<&Args::stride>("stride", 1, "from a window to the next"),       \
      convolution::number<&Args::dilation>("dilation", 1, "from a tap to the next"),  \
      convolution::number<&Args::padding>("padding", 0, "elements before the first"), \
      convolution::number<&Args::extra_padding>(                                      \
          "extra_padding", 0, "so many more behind the last than before the first"),  \
      convolution::kGroups<Args>, convolution::kPaddingMode<Args>

constexpr Option kForwardOptions[] = {ISOBIT_WINDOW_OPTIONS(ForwardArgs),
                                      convolution::kActivation<ForwardArgs>};
constexpr Option kBackwardOptions[] = {ISOBIT_WINDOW_OPTIONS(BackwardArgs)};

#undef ISOBIT_WINDOW_OPTIONS

template <class Args>
Extents extents(const Args& args, const TensorView& y) {
  Extents result{};
  result[kBatch] = args.x.shape[0];
  result[kChannels] = args.x.shape[1];
  result[kFilters] = args.weight.shape[0];
  result[kLength] = args.x.shape[2];
  result[kKernel] = args.weight.shape[2];
  result[kGroupChannels] = args.weight.shape[1];
  result[kOutLength] = y.shape[2];
  return result;
}

const Definition<ForwardArgs, Problem>& forward_definition() {
  static const Definition<ForwardArgs, Problem> kDefinition = [] {
    auto definition = convolution::forward_definition<ForwardArgs, 1>();
    definition.summary =
        "y = activation(pre) + residual; pre = the sums of x times weight over windows of one "
        "dimension, plus bias.";
    definition.dims = kDims<ForwardArgs>;
    definition.options = kForwardOptions;
    definition.extents = [](const ForwardArgs& args) { return extents(args, args.y); };
    return definition;
  }();
  return kDefinition;
}

const Definition<BackwardArgs, BackwardProblem>& backward_definition() {
  static const Definition<BackwardArgs, BackwardProblem> kDefinition = [] {
    auto definition = convolution::backward_definition<BackwardArgs, 1>();
    definition.summary =
        "The gradients of conv1d without an activation; grad_x alone is a transposed convolution.";
    definition.dims = kDims<BackwardArgs>;
    definition.options = kBackwardOptions;
    definition.extents = [](const BackwardArgs& args) { return extents(args, args.grad_y); };
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
  static const TypedOperation<ForwardArgs, Problem> kOperation(forward_definition());
  return kOperation;
}
const Operation& backward_operation() {
  static const TypedOperation<BackwardArgs, BackwardProblem> kOperation(backward_definition());
  return kOperation;
}

}  // namespace isobit::conv1d
