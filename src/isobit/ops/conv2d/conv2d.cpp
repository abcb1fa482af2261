// SPDX-License-Identifier: Apache-2.0
// The conv2d operator: the description of a convolution of images.
#include "isobit/ops/conv2d/conv2d.h"

#include "isobit/ops/convolution/definition.h"

namespace isobit::conv2d {
namespace {

using convolution::BackwardProblem;
using convolution::Problem;

enum Place {
  kBatch,
  kChannels,
  kFilters,
  kHeight,
  kWidth,
  kKernelH,
  kKernelW,
  kGroupChannels,
  kOutHeight,
  kOutWidth
};

template <class Args>
constexpr Dim kDims[] = {
    {.name = "batch", .usual = 1, .in_parity = 3, .batch = true},
    {.name = "channels", .usual = 16, .in_parity = 4},
    {.name = "filters", .usual = 16, .in_parity = 12},
    {.name = "height", .usual = 32, .in_parity = 11},
    {.name = "width", .usual = 32, .in_parity = 19},
    {.name = "kernel_h", .usual = 3, .in_parity = 3},
    {.name = "kernel_w", .usual = 3, .in_parity = 3},
    {.name = "group_channels",
     .derived =
         [](const Extents& others, const void* args) {
           const std::int64_t groups = static_cast<const Args*>(args)->groups;
           return groups < 1 ? 0 : others[kChannels] / groups;
         }},
    {.name = "out_height",
     .derived =
         [](const Extents& others, const void* args) {
           const auto& a = *static_cast<const Args*>(args);
           return convolution::results_of(others[kHeight], others[kKernelH], a.stride_h,
                                          a.dilation_h, a.padding_h, a.extra_padding_h);
         }},
    {.name = "out_width",
     .derived =
         [](const Extents& others, const void* args) {
           const auto& a = *static_cast<const Args*>(args);
           return convolution::results_of(others[kWidth], others[kKernelW], a.stride_w,
                                          a.dilation_w, a.padding_w, a.extra_padding_w);
         }},
};

// What both passes have, and what forward has alone.
#define ISOBIT_WINDOW_OPTIONS(Args)                                                                \
  convolution::number<&Args::stride_h>("stride_h", 1, "from a row of windows to the next"),        \
      convolution::number<&Args::stride_w>("stride_w", 1, "from a window to the next"),            \
      convolution::number<&Args::dilation_h>("dilation_h", 1, "from a row of taps to the next"),   \
      convolution::number<&Args::dilation_w>("dilation_w", 1, "from a tap to the next"),           \
      convolution::number<&Args::padding_h>("padding_h", 0, "rows before the first"),              \
      convolution::number<&Args::padding_w>("padding_w", 0, "elements before the first of a row"), \
      convolution::number<&Args::extra_padding_h>(                                                 \
          "extra_padding_h", 0, "so many more behind the last row than before the first"),         \
      convolution::number<&Args::extra_padding_w>("extra_padding_w", 0,                            \
                                                  "so many more behind a row than before it"),     \
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
  result[kHeight] = args.x.shape[2];
  result[kWidth] = args.x.shape[3];
  result[kKernelH] = args.weight.shape[2];
  result[kKernelW] = args.weight.shape[3];
  result[kGroupChannels] = args.weight.shape[1];
  result[kOutHeight] = y.shape[2];
  result[kOutWidth] = y.shape[3];
  return result;
}

const Definition<ForwardArgs, Problem>& forward_definition() {
  static const Definition<ForwardArgs, Problem> kDefinition = [] {
    auto definition = convolution::forward_definition<ForwardArgs, 2>();
    definition.summary =
        "y = activation(pre) + residual; pre = the sums of x times weight over windows of images, "
        "plus bias.";
    definition.dims = kDims<ForwardArgs>;
    definition.options = kForwardOptions;
    definition.extents = [](const ForwardArgs& args) { return extents(args, args.y); };
    return definition;
  }();
  return kDefinition;
}

const Definition<BackwardArgs, BackwardProblem>& backward_definition() {
  static const Definition<BackwardArgs, BackwardProblem> kDefinition = [] {
    auto definition = convolution::backward_definition<BackwardArgs, 2>();
    definition.summary =
        "The gradients of conv2d without an activation; grad_x alone is a transposed convolution.";
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

}  // namespace isobit::conv2d
