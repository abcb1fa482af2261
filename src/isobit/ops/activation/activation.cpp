// SPDX-License-Identifier: Apache-2.0
// The activation operator: its rules, its arguments, and what its two passes are made of.
#include "isobit/ops/activation/activation.h"

#include <iterator>

#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/activation/cases.h"
#include "isobit/ops/activation/problem.h"
#include "isobit/ops/activation/reference.h"

namespace isobit::activation {
namespace {

constexpr std::string_view kFunctions[] = {"exp",  "log",       "sigmoid", "tanh",
                                           "gelu", "gelu_tanh", "silu"};

constexpr Dim kDims[] = {{.name = "rows", .usual = 64, .in_parity = 37, .batch = true},
                         {.name = "cols", .usual = 768, .in_parity = 1000}};

constexpr Argument kForwardArguments[] = {
    argument<&ForwardArgs::x>("x", Role::input, "rows cols", Elements::like_x, Presence::required,
                              Drawn::family)
        .means("in f32, f16, bf16 or f64; rows evenly spaced"),
    argument<&ForwardArgs::gate>("gate", Role::input, "rows cols", Elements::like_x,
                                 Presence::extra, Drawn::family)
        .means("like x, or NULL; y = x * f(gate)"),
    argument<&ForwardArgs::y>("y", Role::output, "rows cols", Elements::like_x, Presence::required)
        .means("like x; may be x or gate"),
};

constexpr Argument kBackwardArguments[] = {
    argument<&BackwardArgs::x>("x", Role::input, "rows cols", Elements::like_x, Presence::required,
                               Drawn::family)
        .means("in f32, f16, bf16 or f64; rows evenly spaced"),
    argument<&BackwardArgs::grad_y>("grad_y", Role::input, "rows cols", Elements::like_x,
                                    Presence::required, Drawn::gradient)
        .means("like x"),
    argument<&BackwardArgs::gate>("gate", Role::input, "rows cols", Elements::like_x,
                                  Presence::extra, Drawn::family)
        .means("like x, or NULL, as in forward"),
    argument<&BackwardArgs::grad_x>("grad_x", Role::output, "rows cols", Elements::like_x,
                                    Presence::required)
        .means("like x; may be x, grad_y or gate"),
    argument<&BackwardArgs::grad_gate>("grad_gate", Role::output, "rows cols", Elements::like_x,
                                       Presence::extra)
        .means("like x, or NULL, as it is without a gate; may be x, grad_y or gate"),
};

template <class Args>
inline constexpr Option kOptions[] = {
    option<&Args::function>("function", 0, kFunctions)
        .means("0 exp, 1 log, 2 sigmoid, 3 tanh, 4 gelu, 5 gelu_tanh, 6 silu")};

// What several arrays share; those that are not given have no data.
class Check {
 public:
  Check(const TensorView& x, Function function) : x_(x) {
    const int code = static_cast<int>(function);
    require(0 <= code && code < std::ssize(kFunctions), "activation: function is ", code,
            "; allowed: 0 to ", std::ssize(kFunctions) - 1);
    checker_.dtype("x", x, {DType::f32, DType::f16, DType::bf16, DType::f64});
    problem_.function = function;
    problem_.dtype = x.dtype;
    problem_.x = checker_.matrix("x", x, Access::read);
  }

  Matrix like_x(std::string_view name, const TensorView& view, Access access) const {
    const Matrix matrix = checker_.matrix_like(name, view, access, "x", x_);
    checker_.same_dtype(name, view, "x", x_.dtype);
    return matrix;
  }

  // One row where all rows are adjacent.
  Problem joined() {
    Matrix* const all[] = {&problem_.x, &problem_.gate, &problem_.grad_y, &problem_.y,
                           &problem_.grad_gate};
    for (const Matrix* matrix : all)
      if (matrix->data != nullptr && matrix->rows > 1 && matrix->stride != matrix->cols)
        return problem_;
    for (Matrix* matrix : all) {
      matrix->cols *= matrix->rows;
      matrix->rows = matrix->rows == 0 ? 0 : 1;
    }
    return problem_;
  }

  const Checker& checker() const { return checker_; }
  Problem& problem() { return problem_; }

 private:
  const TensorView& x_;
  Checker checker_{"activation"};
  Problem problem_{};
};

Problem check_forward(const ForwardArgs& args) {
  Check check(args.x, args.function);
  Problem& problem = check.problem();
  if (args.gate.given()) problem.gate = check.like_x("gate", args.gate, Access::read);
  problem.y = check.like_x("y", args.y, Access::write);
  check.checker().no_overlap({{"y", args.y, problem.y, {"x", "gate"}}},
                             {{"x", args.x, problem.x}, {"gate", args.gate, problem.gate}});
  return check.joined();
}

Problem check_backward(const BackwardArgs& args) {
  Check check(args.x, args.function);
  Problem& problem = check.problem();
  problem.grad_y = check.like_x("grad_y", args.grad_y, Access::read);
  if (args.gate.given()) problem.gate = check.like_x("gate", args.gate, Access::read);
  problem.y = check.like_x("grad_x", args.grad_x, Access::write);
  if (args.grad_gate.given()) {
    require(args.gate.given(), "activation: grad_gate is given, but there is no gate");
    problem.grad_gate = check.like_x("grad_gate", args.grad_gate, Access::write);
  }
  check.checker().no_overlap(
      {{"grad_x", args.grad_x, problem.y, {"x", "grad_y", "gate"}},
       {"grad_gate", args.grad_gate, problem.grad_gate, {"x", "grad_y", "gate"}}},
      {{"x", args.x, problem.x},
       {"grad_y", args.grad_y, problem.grad_y},
       {"gate", args.gate, problem.gate}});
  return check.joined();
}

template <class Args>
Extents extents(const Args& args) {
  Extents result{1, args.x.shape[args.x.rank - 1]};
  for (int i = 0; i + 1 < args.x.rank; ++i) result[0] *= args.x.shape[i];
  return result;
}

const Definition<ForwardArgs, Problem>& forward_definition() {
  static const Definition<ForwardArgs, Problem> kDefinition = {
      .op = "activation",
      .pass = "fwd",
      .summary =
          "y = f(x), or x * f(gate), of each element; f is exp, log, sigmoid, tanh, gelu, "
          "gelu_tanh or silu.",
      .version = 1,
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
      .op = "activation",
      .pass = "bwd",
      .summary =
          "The gradients of activation_forward: grad_x = grad_y * f'(x); with a gate, "
          "grad_y * f(gate), and grad_gate = grad_y * x * f'(gate).",
      .version = 1,
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

}  // namespace isobit::activation
