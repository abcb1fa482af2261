// SPDX-License-Identifier: Apache-2.0
// The pool2d operator: its arguments, and what its two passes are made of.
#include "isobit/ops/pool2d/pool2d.h"

#include "isobit/dispatch/definition.h"
#include "isobit/ops/pool2d/cases.h"
#include "isobit/ops/pool2d/problem.h"
#include "isobit/ops/pool2d/reference.h"

namespace isobit::pool2d {
namespace {

constexpr std::string_view kReductions[] = {"max", "average"};

enum Place { kBatch, kChannels, kHeight, kWidth, kOutHeight, kOutWidth, kPlane };

template <class Args>
constexpr Dim kDims[] = {
    {.name = "batch", .usual = 1, .in_parity = 3, .batch = true},
    {.name = "channels", .usual = 16, .in_parity = 5},
    {.name = "height", .usual = 32, .in_parity = 11},
    {.name = "width", .usual = 32, .in_parity = 19},
    {.name = "out_height",
     .derived =
         [](const Extents& others, const void* args) {
           const auto& a = *static_cast<const Args*>(args);
           return results_of(others[kHeight], a.window_h, a.bins_h, a.stride_h, a.padding_h,
                             a.dilation_h, a.ceil_mode);
         }},
    {.name = "out_width",
     .derived =
         [](const Extents& others, const void* args) {
           const auto& a = *static_cast<const Args*>(args);
           return results_of(others[kWidth], a.window_w, a.bins_w, a.stride_w, a.padding_w,
                             a.dilation_w, a.ceil_mode);
         }},
    {.name = "plane",
     .derived = [](const Extents& others,
                   const void*) { return others[kHeight] * others[kWidth]; }},
};

template <class Args>
bool finds(const void* args) {
  return static_cast<const Args*>(args)->reduction == Reduction::max;
}

constexpr std::string_view kX = "batch channels height width",
                           kY = "batch channels out_height out_width";

constexpr Argument kForwardArguments[] = {
    argument<&ForwardArgs::x>("x", Role::input, kX, Elements::like_x, Presence::required,
                              Drawn::family)
        .with_any_strides()
        .means("(batch, channels, height, width) in f32, f16, bf16 or f64, and of any strides"),
    argument<&ForwardArgs::y>("y", Role::output, kY, Elements::like_x, Presence::required)
        .with_any_strides()
        .means("(batch, channels, out_height, out_width) in the dtype of x"),
    argument<&ForwardArgs::index>("index", Role::output, kY, Elements::index, Presence::extra)
        .with_any_strides()
        .where(finds<ForwardArgs>)
        .means("like y in i64, or NULL; for max, where it stands: row * width + column; -1: "
               "nowhere"),
};

constexpr Argument kBackwardArguments[] = {
    argument<&BackwardArgs::grad_y>("grad_y", Role::input, kY, Elements::like_x, Presence::required,
                                    Drawn::gradient)
        .with_any_strides()
        .means("(batch, channels, out_height, out_width) in the dtype of grad_x"),
    argument<&BackwardArgs::index>("index", Role::input, kY, Elements::index, Presence::required,
                                   Drawn::index)
        .below_extent_of("plane")
        .with_any_strides()
        .where(finds<BackwardArgs>)
        .means("like grad_y in i64, as forward gave it; for average NULL"),
    argument<&BackwardArgs::grad_x>("grad_x", Role::output, kX, Elements::like_x,
                                    Presence::required)
        .with_any_strides()
        .means("(batch, channels, height, width) in f32, f16, bf16 or f64, and of any strides"),
};

// A number that windows depend on.
template <auto kMember>
constexpr Option number(std::string_view name, double usual, std::string_view meaning) {
  const Option plain =
      option<kMember>(name, usual).changing_plans(PlanDependence::value).means(meaning);
  return usual == 0 ? plain : plain.defaulting_at_zero();
}

template <class Args>
constexpr Option kOptions[] = {
    option<&Args::reduction>("reduction", 0, kReductions).means("0 max, 1 average"),
    number<&Args::window_h>("window_h", 0, "rows of a window; 0: bins_h windows share the height"),
    number<&Args::window_w>("window_w", 0,
                            "elements of a row of it; 0: bins_w windows share the width"),
    number<&Args::bins_h>("bins_h", 1, "windows above one another, where window_h is 0"),
    number<&Args::bins_w>("bins_w", 1, "windows side by side, where window_w is 0"),
    number<&Args::stride_h>("stride_h", 0, "from a row of windows to the next; 0: window_h"),
    number<&Args::stride_w>("stride_w", 0, "from a window to the next; 0: window_w"),
    number<&Args::padding_h>("padding_h", 0, "rows before the first and behind the last"),
    number<&Args::padding_w>("padding_w", 0,
                             "elements before the first and behind the last of a row"),
    number<&Args::dilation_h>("dilation_h", 1, "from a row of a window to its next, of max"),
    number<&Args::dilation_w>("dilation_w", 1, "from an element to its next, of max"),
    option<&Args::ceil_mode>("ceil_mode", 0).means("windows may end behind the padding"),
    option<&Args::count_include_pad>("count_include_pad", 0)
        .means("means are divided by a count that has the padding too"),
    option<&Args::divisor>("divisor", 0)
        .changing_plans(PlanDependence::presence)
        .means("what sums are divided by to be means; 0: how many elements they have"),
};

Extents extents(const TensorView& x, const TensorView& y) {
  Extents result{};
  result[kBatch] = x.shape[0];
  result[kChannels] = x.shape[1];
  result[kHeight] = x.shape[2];
  result[kWidth] = x.shape[3];
  result[kOutHeight] = y.shape[2];
  result[kOutWidth] = y.shape[3];
  result[kPlane] = x.shape[2] * x.shape[3];
  return result;
}

const Definition<ForwardArgs, Problem>& forward_definition() {
  static const Definition<ForwardArgs, Problem> kDefinition = {
      .op = "pool2d",
      .pass = "fwd",
      .summary = "The largest element or the mean of each window of images.",
      .version = 1,
      .dims = kDims<ForwardArgs>,
      .arguments = kForwardArguments,
      .options = kOptions<ForwardArgs>,
      .check = check_forward,
      .extents = [](const ForwardArgs& args) { return extents(args.x, args.y); },
      .variants = cpu_forward_variants(),
      .cost = forward_cost,
      .cases = forward_cases,
      .reference = forward_reference,
      .intermediates = forward_intermediates,
      .limit = forward_limit};
  return kDefinition;
}

const Definition<BackwardArgs, Problem>& backward_definition() {
  static const Definition<BackwardArgs, Problem> kDefinition = {
      .op = "pool2d",
      .pass = "bwd",
      .summary =
          "The gradient of pool2d_forward: the sums of the gradients of windows that an element "
          "was the largest of, or had a part in the mean of.",
      .version = 1,
      .dims = kDims<BackwardArgs>,
      .arguments = kBackwardArguments,
      .options = kOptions<BackwardArgs>,
      .check = check_backward,
      .extents = [](const BackwardArgs& args) { return extents(args.grad_x, args.grad_y); },
      .variants = cpu_backward_variants(),
      .cost = backward_cost,
      .cases = backward_cases,
      .reference = backward_reference,
      .intermediates = backward_intermediates,
      .limit = backward_limit};
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
  static const TypedOperation<BackwardArgs, Problem> kOperation(backward_definition());
  return kOperation;
}

}  // namespace isobit::pool2d
