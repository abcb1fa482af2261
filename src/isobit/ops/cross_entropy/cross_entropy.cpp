// SPDX-License-Identifier: Apache-2.0
// The cross_entropy operator: its rules, its arguments, and what its two passes are made of.
#include "isobit/ops/cross_entropy/cross_entropy.h"

#include "isobit/dispatch/definition.h"
#include "isobit/ops/cross_entropy/arguments.h"
#include "isobit/ops/cross_entropy/cases.h"
#include "isobit/ops/cross_entropy/check.h"
#include "isobit/ops/cross_entropy/problem.h"
#include "isobit/ops/cross_entropy/reference.h"

namespace isobit::cross_entropy {
namespace {

constexpr Dim kDims[] = {{.name = "rows", .usual = 64, .in_parity = 37, .batch = true},
                         {.name = "cols", .usual = 1000, .in_parity = 1000},
                         kOne};

template <class Args>
constexpr Argument kX = argument<&Args::x>("x", Role::input, "rows cols", Elements::like_x,
                                           Presence::required, Drawn::family)
                            .means(
                                "logits in f32, f16, bf16 or f64, of a class each; rows evenly "
                                "spaced");

constexpr Argument kForwardArguments[] = {
    kX<ForwardArgs>,
    kTarget<ForwardArgs>.below_extent_of("cols"),
    weight_of_classes<&ForwardArgs::weight>("weight", "cols"),
    kLoss<ForwardArgs>,
    kLse<ForwardArgs>,
    kLargest<ForwardArgs>,
    kSum<ForwardArgs>,
    kTotal<ForwardArgs>,
    kCount<ForwardArgs>,
};

constexpr Argument kBackwardArguments[] = {
    kGradLoss<BackwardArgs>,
    kX<BackwardArgs>,
    kTarget<BackwardArgs>.below_extent_of("cols"),
    weight_of_classes<&BackwardArgs::weight>("weight", "cols"),
    kGivenLargest<BackwardArgs>,
    kGivenSum<BackwardArgs>,
    argument<&BackwardArgs::grad_x>("grad_x", Role::output, "rows cols", Elements::like_x,
                                    Presence::required)
        .means("like x; may be x"),
};

template <class Args>
Check check_of(const Args& args) {
  const Checker checker("cross_entropy");
  Given logits{};
  logits.x = checker.matrix("x", args.x, Access::read);
  checker.dtype("x", args.x, {DType::f32, DType::f16, DType::bf16, DType::f64});
  logits.rows = logits.x.rows;
  logits.cols = logits.x.cols;
  logits.dtype = args.x.dtype;
  return {"cross_entropy", logits, args, "weight", args.weight, "columns", "x"};
}

ForwardProblem check_forward(const ForwardArgs& args) {
  const Check check = check_of(args);
  const Given& given = check.given();
  const Matrix loss = check.required_of_rows("loss", args.loss);
  const Matrix lse = check.of_rows("lse", args.lse);
  const Matrix largest = check.of_rows("largest", args.largest);
  const Matrix sum = check.of_rows("sum", args.sum);
  const Matrix total = check.numbers("total", args.total, 1, "total");
  const Matrix count = check.numbers("count", args.count, 1, "count");
  check.checker().no_overlap({{"loss", args.loss, loss},
                              {"lse", args.lse, lse},
                              {"largest", args.largest, largest},
                              {"sum", args.sum, sum},
                              {"total", args.total, total},
                              {"count", args.count, count}},
                             {{"x", args.x, given.x},
                              {"target", args.target, check.target},
                              {"weight", args.weight, check.weight}});
  return {{given}, loss.data, lse.data, largest.data, sum.data, total.data, count.data};
}

BackwardProblem check_backward(const BackwardArgs& args) {
  const Check check = check_of(args);
  const Given& given = check.given();
  const Matrix grad_loss = check.required_of_rows("grad_loss", args.grad_loss);
  const Matrix largest = check.required_of_rows("largest", args.largest);
  const Matrix sum = check.required_of_rows("sum", args.sum);
  const Matrix grad_x =
      check.checker().matrix_like("grad_x", args.grad_x, Access::write, "x", args.x);
  check.checker().same_dtype("grad_x", args.grad_x, "x", args.x.dtype);
  check.checker().no_overlap({{"grad_x", args.grad_x, grad_x, {"x"}}},
                             {{"x", args.x, given.x},
                              {"grad_loss", args.grad_loss, grad_loss},
                              {"target", args.target, check.target},
                              {"weight", args.weight, check.weight},
                              {"largest", args.largest, largest},
                              {"sum", args.sum, sum}});
  return {{given}, grad_loss.data, largest.data, sum.data, grad_x};
}

template <class Problem>
void check_contents(const Problem& problem) {
  check_targets("cross_entropy", problem);
}

template <class Args>
Extents extents_of(const Args& args) {
  const TensorView& x = args.x;
  Extents result{1, x.shape[x.rank - 1], 1};
  for (int i = 0; i + 1 < x.rank; ++i) result[0] *= x.shape[i];
  return result;
}

const Definition<ForwardArgs, ForwardProblem>& forward_definition() {
  static const Definition<ForwardArgs, ForwardProblem> kDefinition = {
      .op = "cross_entropy",
      .pass = "fwd",
      .summary =
          "The loss of each row of logits beside the class that it should have named, w[target] "
          "((1 - label_smoothing) (lse - x[target]) + z_loss lse^2) + label_smoothing / cols * sum "
          "of w[c] (lse - x[c]), with lse = log(sum of exp(x)) and w the weights. Where a target "
          "is ignore_index it is 0; any other that is no class is an error, on a device NaN.",
      .version = 1,
      .dims = kDims,
      .arguments = kForwardArguments,
      .options = kOptions<ForwardArgs>,
      .check = check_forward,
      .extents = extents_of<ForwardArgs>,
      .check_contents = check_contents<ForwardProblem>,
      .variants = cpu_forward_variants(),
      .cost = forward_cost,
      .cases = forward_cases,
      .reference = forward_reference,
      .intermediates = forward_intermediates};
  return kDefinition;
}

const Definition<BackwardArgs, BackwardProblem>& backward_definition() {
  static const Definition<BackwardArgs, BackwardProblem> kDefinition = {
      .op = "cross_entropy",
      .pass = "bwd",
      .summary =
          "The gradient of the logits of cross_entropy_forward, from those of its losses. 0 in "
          "rows "
          "whose target is ignore_index.",
      .version = 1,
      .dims = kDims,
      .arguments = kBackwardArguments,
      .options = kOptions<BackwardArgs>,
      .check = check_backward,
      .extents = extents_of<BackwardArgs>,
      .check_contents = check_contents<BackwardProblem>,
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

}  // namespace isobit::cross_entropy
