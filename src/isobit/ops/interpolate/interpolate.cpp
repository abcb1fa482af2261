// SPDX-License-Identifier: Apache-2.0
// The interpolate operator: its arguments, and what its two passes are made of.
#include "isobit/ops/interpolate/interpolate.h"

#include "isobit/dispatch/definition.h"
#include "isobit/ops/interpolate/cases.h"
#include "isobit/ops/interpolate/problem.h"
#include "isobit/ops/interpolate/reference.h"

namespace isobit::interpolate {
namespace {

constexpr std::string_view kModes[] = {"nearest", "nearest_exact", "linear", "cubic"};

constexpr Dim kDims[] = {
    {.name = "batch", .usual = 1, .in_parity = 3, .batch = true},
    {.name = "channels", .usual = 16, .in_parity = 5},
    {.name = "height", .usual = 32, .in_parity = 11},
    {.name = "width", .usual = 32, .in_parity = 19},
    {.name = "out_height", .usual = 64, .in_parity = 7},
    {.name = "out_width", .usual = 64, .in_parity = 37},
};

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
};

constexpr Argument kBackwardArguments[] = {
    argument<&BackwardArgs::grad_y>("grad_y", Role::input, kY, Elements::like_x, Presence::required,
                                    Drawn::gradient)
        .with_any_strides()
        .means("(batch, channels, out_height, out_width) in the dtype of grad_x"),
    argument<&BackwardArgs::grad_x>("grad_x", Role::output, kX, Elements::like_x,
                                    Presence::required)
        .with_any_strides()
        .means("(batch, channels, height, width) in f32, f16, bf16 or f64, and of any strides"),
};

template <class Args>
constexpr Option kOptions[] = {
    option<&Args::mode>("mode", 0, kModes).means("0 nearest, 1 nearest_exact, 2 linear, 3 cubic"),
    option<&Args::align_corners>("align_corners", 0)
        .means("of linear and cubic: the first and last results are the first and last elements"),
    option<&Args::scale_h>("scale_h", 0)
        .means("rows of results a row of x, where results lie by it; 0: as the heights say"),
    option<&Args::scale_w>("scale_w", 0)
        .means("results an element of a row, where they lie by it; 0: as the widths say"),
};

Extents extents(const TensorView& x, const TensorView& y) {
  Extents result{};
  for (int i = 0; i < 4; ++i) result[static_cast<std::size_t>(i)] = x.shape[i];
  for (int i = 2; i < 4; ++i) result[static_cast<std::size_t>(i) + 2] = y.shape[i];
  return result;
}

const Definition<ForwardArgs, Problem>& forward_definition() {
  static const Definition<ForwardArgs, Problem> kDefinition = {
      .op = "interpolate",
      .pass = "fwd",
      .summary =
          "Images of another size, whose elements are the nearest of x or weighted sums of "
          "2 x 2 or 4 x 4 of them.",
      .version = 1,
      .dims = kDims,
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
      .op = "interpolate",
      .pass = "bwd",
      .summary =
          "The gradient of interpolate_forward: the weighted sums of the gradients of "
          "results that an element had a part in.",
      .version = 1,
      .dims = kDims,
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

}  // namespace isobit::interpolate
