// SPDX-License-Identifier: Apache-2.0
// The softmax operator: its rules, its arguments, and what its two passes are made of.
#include "isobit/ops/softmax/softmax.h"

#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/softmax/cases.h"
#include "isobit/ops/softmax/problem.h"
#include "isobit/ops/softmax/reference.h"

namespace isobit::softmax {
namespace {

constexpr Dim kDims[] = {{.name = "rows", .usual = 64, .in_parity = 37, .batch = true},
                         {.name = "cols", .usual = 768, .in_parity = 1000}};

template <class Args>
constexpr Argument kMask = argument<&Args::mask>("mask", Role::input, "rows cols", Elements::mask,
                                                 Presence::extra, Drawn::mask)
                               .means("like x in bool or u8, or NULL; 0 where there is no element");

constexpr Argument kForwardArguments[] = {
    argument<&ForwardArgs::x>("x", Role::input, "rows cols", Elements::like_x, Presence::required,
                              Drawn::family)
        .means("in f32, f16, bf16 or f64; rows evenly spaced"),
    kMask<ForwardArgs>,
    argument<&ForwardArgs::y>("y", Role::output, "rows cols", Elements::like_y, Presence::required)
        .means("like x, or f32 beside 16 bits; may be x"),
};

constexpr Argument kBackwardArguments[] = {
    argument<&BackwardArgs::y>("y", Role::input, "rows cols", Elements::like_y, Presence::required,
                               Drawn::produced)
        .means("as forward gave it; rows evenly spaced"),
    argument<&BackwardArgs::grad_y>("grad_y", Role::input, "rows cols", Elements::like_y,
                                    Presence::required, Drawn::gradient)
        .means("like y"),
    kMask<BackwardArgs>,
    argument<&BackwardArgs::grad_x>("grad_x", Role::output, "rows cols", Elements::like_x,
                                    Presence::required)
        .means("like y, or 16 bits beside f32; may be grad_y or y"),
};

template <class Args>
inline constexpr Option kOptions[] = {
    option<&Args::scale>("scale", 1).means("of x; 1 for none, and never 0"),
    option<&Args::log>("log", 0).means("y is its logarithm"),
};

// 16 bits of x may have results of f32.
void check_types(const Checker& checker, std::string_view wide_name, const TensorView& wide,
                 std::string_view x_name, const TensorView& x) {
  checker.dtype(x_name, x, {DType::f32, DType::f16, DType::bf16, DType::f64});
  if (size_of(x.dtype) == 2)
    checker.dtype(wide_name, wide, {x.dtype, DType::f32});
  else
    checker.same_dtype(wide_name, wide, x_name, x.dtype);
}

// A scale of 0, which structs of C have that nobody filled in, makes all elements alike.
double check_scale(const Checker& checker, double scale, DType real) {
  require(scale != 0, "softmax: scale is 0; must be another number, 1 for none");
  return checker.finite("scale", scale, real);
}

Matrix check_mask(const Checker& checker, const TensorView& mask, std::string_view like_name,
                  const TensorView& like) {
  if (!mask.given()) return {};
  checker.dtype("mask", mask, {DType::boolean, DType::u8});
  return checker.matrix_like("mask", mask, Access::read, like_name, like);
}

ForwardProblem check_forward(const ForwardArgs& args) {
  const Checker checker("softmax");
  ForwardProblem problem{};
  problem.x = checker.matrix("x", args.x, Access::read);
  problem.mask = check_mask(checker, args.mask, "x", args.x);
  problem.y = checker.matrix_like("y", args.y, Access::write, "x", args.x);
  check_types(checker, "y", args.y, "x", args.x);
  checker.no_overlap({{"y", args.y, problem.y, {"x"}}},
                     {{"x", args.x, problem.x}, {"mask", args.mask, problem.mask}});
  problem.rows = problem.x.rows;
  problem.cols = problem.x.cols;
  problem.x_dtype = args.x.dtype;
  problem.y_dtype = args.y.dtype;
  problem.scale = check_scale(checker, args.scale, real_of(args.x.dtype));
  problem.log = args.log;
  return problem;
}

BackwardProblem check_backward(const BackwardArgs& args) {
  const Checker checker("softmax");
  BackwardProblem problem{};
  problem.y = checker.matrix("y", args.y, Access::read);
  checker.dtype("y", args.y, {DType::f32, DType::f16, DType::bf16, DType::f64});
  problem.grad_y = checker.matrix_like("grad_y", args.grad_y, Access::read, "y", args.y);
  checker.same_dtype("grad_y", args.grad_y, "y", args.y.dtype);
  problem.mask = check_mask(checker, args.mask, "y", args.y);
  problem.grad_x = checker.matrix_like("grad_x", args.grad_x, Access::write, "y", args.y);
  check_types(checker, "y", args.y, "grad_x", args.grad_x);
  checker.no_overlap({{"grad_x", args.grad_x, problem.grad_x, {"y", "grad_y"}}},
                     {{"y", args.y, problem.y},
                      {"grad_y", args.grad_y, problem.grad_y},
                      {"mask", args.mask, problem.mask}});
  problem.rows = problem.y.rows;
  problem.cols = problem.y.cols;
  problem.x_dtype = args.grad_x.dtype;
  problem.y_dtype = args.y.dtype;
  problem.scale = check_scale(checker, args.scale, real_of(args.y.dtype));
  problem.log = args.log;
  return problem;
}

Extents extents_of(const TensorView& view) {
  Extents result{1, view.shape[view.rank - 1]};
  for (int i = 0; i + 1 < view.rank; ++i) result[0] *= view.shape[i];
  return result;
}

const Definition<ForwardArgs, ForwardProblem>& forward_definition() {
  static const Definition<ForwardArgs, ForwardProblem> kDefinition = {
      .op = "softmax",
      .pass = "fwd",
      .summary =
          "y = exp(scale x) / sum of exp(scale x) over each row, the last dimension, or with log "
          "its logarithm. Where a mask is 0 there is no element: y is 0, or -infinity.",
      .version = 1,
      .dims = kDims,
      .arguments = kForwardArguments,
      .options = kOptions<ForwardArgs>,
      .check = check_forward,
      .extents = [](const ForwardArgs& args) { return extents_of(args.x); },
      .variants = cpu_forward_variants(),
      .cost = forward_cost,
      .cases = forward_cases,
      .reference = forward_reference,
      .intermediates = forward_intermediates};
  return kDefinition;
}

const Definition<BackwardArgs, BackwardProblem>& backward_definition() {
  static const Definition<BackwardArgs, BackwardProblem> kDefinition = {
      .op = "softmax",
      .pass = "bwd",
      .summary =
          "The gradient of softmax_forward, from its result: scale y (grad_y - sum of grad_y y), "
          "or with log scale (grad_y - exp(y) sum of grad_y). 0 where a mask is 0.",
      .version = 1,
      .dims = kDims,
      .arguments = kBackwardArguments,
      .options = kOptions<BackwardArgs>,
      .check = check_backward,
      .extents = [](const BackwardArgs& args) { return extents_of(args.y); },
      .variants = cpu_backward_variants(),
      .cost = backward_cost,
      .cases = backward_cases,
      .reference = backward_reference,
      .intermediates = backward_intermediates};
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

}  // namespace isobit::softmax
