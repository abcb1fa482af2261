// SPDX-License-Identifier: Apache-2.0
// The pointwise_loss operator: its rules, its arguments, and what its two passes are made of.
#include "isobit/ops/pointwise_loss/pointwise_loss.h"

#include <iterator>

#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/pointwise_loss/cases.h"
#include "isobit/ops/pointwise_loss/problem.h"
#include "isobit/ops/pointwise_loss/reference.h"

namespace isobit::pointwise_loss {
namespace {

constexpr std::string_view kKinds[] = {"mse", "l1", "smooth_l1", "huber", "bce_with_logits"};

constexpr Dim kDims[] = {{.name = "rows", .usual = 64, .in_parity = 37, .batch = true},
                         {.name = "cols", .usual = 768, .in_parity = 1000}};

template <class Args>
constexpr Argument kX = argument<&Args::x>("x", Role::input, "rows cols", Elements::like_x,
                                           Presence::required, Drawn::family)
                            .means("in f32, f16, bf16 or f64; rows evenly spaced");
template <class Args>
constexpr Argument kTarget =
    argument<&Args::target>("target", Role::input, "rows cols", Elements::like_x,
                            Presence::required, Drawn::normal)
        .means("like x");
template <class Args>
constexpr Argument kWeight =
    argument<&Args::weight>("weight", Role::input, "rows cols", Elements::like_x, Presence::extra,
                            Drawn::weight)
        .means("like x, or NULL; what each loss is multiplied by");
template <class Args>
constexpr Argument kPosWeight =
    argument<&Args::pos_weight>("pos_weight", Role::input, "rows cols", Elements::like_x,
                                Presence::extra, Drawn::weight)
        .where([](const void* args) {
          return static_cast<const Args*>(args)->function == Kind::bce_with_logits;
        })
        .means("like x, or NULL; of bce_with_logits: how much targets of 1 count");

constexpr Argument kForwardArguments[] = {
    kX<ForwardArgs>,
    kTarget<ForwardArgs>,
    kWeight<ForwardArgs>,
    kPosWeight<ForwardArgs>,
    argument<&ForwardArgs::loss>("loss", Role::output, "rows cols", Elements::statistic,
                                 Presence::required)
        .means("of each element in f32 (f64 beside f64)"),
};

constexpr Argument kBackwardArguments[] = {
    kX<BackwardArgs>,
    kTarget<BackwardArgs>,
    kWeight<BackwardArgs>,
    kPosWeight<BackwardArgs>,
    argument<&BackwardArgs::grad_loss>("grad_loss", Role::input, "rows cols", Elements::statistic,
                                       Presence::required, Drawn::gradient)
        .means("of each element in f32 (f64 beside f64)"),
    argument<&BackwardArgs::grad_x>("grad_x", Role::output, "rows cols", Elements::like_x,
                                    Presence::required)
        .means("like x; may be x or target"),
};

template <class Args>
inline constexpr Option kOptions[] = {
    option<&Args::function>("function", 0, kKinds)
        .means("0 mse, 1 l1, 2 smooth_l1, 3 huber, 4 bce_with_logits"),
    option<&Args::beta>("beta", 1).means(
        "of smooth_l1 and huber: the distance from which they are straight; huber's is above 0"),
};

template <class Args>
Problem check_inputs(const Checker& checker, const Args& args) {
  const int code = static_cast<int>(args.function);
  require(0 <= code && code < std::ssize(kKinds), "pointwise_loss: function is ", code,
          "; allowed: 0 to ", std::ssize(kKinds) - 1);
  checker.dtype("x", args.x, {DType::f32, DType::f16, DType::bf16, DType::f64});
  const auto like_x = [&](std::string_view name, const TensorView& view) {
    const Matrix matrix = checker.matrix_like(name, view, Access::read, "x", args.x);
    checker.same_dtype(name, view, "x", args.x.dtype);
    return matrix;
  };
  Problem problem{.kind = args.function,
                  .beta = args.beta,
                  .dtype = args.x.dtype,
                  .x = checker.matrix("x", args.x, Access::read),
                  .target = like_x("target", args.target),
                  .weight = {},
                  .pos_weight = {},
                  .loss = {},
                  .grad_x = {}};
  if (args.weight.given()) problem.weight = like_x("weight", args.weight);
  if (args.pos_weight.given()) {
    require(args.function == Kind::bce_with_logits,
            "pointwise_loss: pos_weight is given; it belongs to bce_with_logits");
    problem.pos_weight = like_x("pos_weight", args.pos_weight);
  }
  if (args.function == Kind::smooth_l1 || args.function == Kind::huber) {
    checker.finite("beta", args.beta, args.x.dtype == DType::f64 ? DType::f64 : DType::f32);
    const bool huber = args.function == Kind::huber;
    require(args.beta > 0 || (args.beta == 0 && !huber), "pointwise_loss: beta is ", args.beta,
            huber ? "; must be above 0 in huber" : "; must not be negative");
  }
  return problem;
}

DType statistic(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

Problem check_forward(const ForwardArgs& args) {
  const Checker checker("pointwise_loss");
  Problem problem = check_inputs(checker, args);
  problem.loss = checker.matrix_like("loss", args.loss, Access::write, "x", args.x);
  checker.dtype("loss", args.loss, {statistic(args.x.dtype)});
  checker.no_overlap({{"loss", args.loss, problem.loss}},
                     {{"x", args.x, problem.x},
                      {"target", args.target, problem.target},
                      {"weight", args.weight, problem.weight},
                      {"pos_weight", args.pos_weight, problem.pos_weight}});
  return problem;
}

Problem check_backward(const BackwardArgs& args) {
  const Checker checker("pointwise_loss");
  Problem problem = check_inputs(checker, args);
  problem.loss = checker.matrix_like("grad_loss", args.grad_loss, Access::read, "x", args.x);
  checker.dtype("grad_loss", args.grad_loss, {statistic(args.x.dtype)});
  problem.grad_x = checker.matrix_like("grad_x", args.grad_x, Access::write, "x", args.x);
  checker.same_dtype("grad_x", args.grad_x, "x", args.x.dtype);
  checker.no_overlap({{"grad_x", args.grad_x, problem.grad_x, {"x", "target"}}},
                     {{"x", args.x, problem.x},
                      {"target", args.target, problem.target},
                      {"weight", args.weight, problem.weight},
                      {"pos_weight", args.pos_weight, problem.pos_weight},
                      {"grad_loss", args.grad_loss, problem.loss}});
  return problem;
}

template <class Args>
Extents extents(const Args& args) {
  Extents result{1, args.x.shape[args.x.rank - 1]};
  for (int i = 0; i + 1 < args.x.rank; ++i) result[0] *= args.x.shape[i];
  return result;
}

const Definition<ForwardArgs, Problem>& forward_definition() {
  static const Definition<ForwardArgs, Problem> kDefinition = {
      .op = "pointwise_loss",
      .pass = "fwd",
      .summary =
          "The loss of each element and its target: squared, absolute, either by distance, or the "
          "cross entropy of a logit.",
      .version = 3,
      .dims = kDims,
      .arguments = kForwardArguments,
      .options = kOptions<ForwardArgs>,
      .check = check_forward,
      .extents = extents<ForwardArgs>,
      .variants = cpu_forward_variants(),
      .cost = forward_cost,
      .cases = forward_cases,
      .reference = forward_reference,
      .intermediates = forward_intermediates};
  return kDefinition;
}

const Definition<BackwardArgs, Problem>& backward_definition() {
  static const Definition<BackwardArgs, Problem> kDefinition = {
      .op = "pointwise_loss",
      .pass = "bwd",
      .summary = "The gradient of pointwise_loss_forward by x.",
      .version = 3,
      .dims = kDims,
      .arguments = kBackwardArguments,
      .options = kOptions<BackwardArgs>,
      .check = check_backward,
      .extents = extents<BackwardArgs>,
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
  static const TypedOperation<ForwardArgs, Problem> kOperation(forward_definition());
  return kOperation;
}
const Operation& backward_operation() {
  static const TypedOperation<BackwardArgs, Problem> kOperation(backward_definition());
  return kOperation;
}

}  // namespace isobit::pointwise_loss
