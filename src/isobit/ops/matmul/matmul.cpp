// SPDX-License-Identifier: Apache-2.0
// The matmul operator: its rules, its arguments, and what its two passes are made of.
#include "isobit/ops/matmul/matmul.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "isobit/core/check.h"
#include "isobit/core/error.h"
#include "isobit/core/matrix_views.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/matmul/cases.h"
#include "isobit/ops/matmul/problem.h"
#include "isobit/ops/matmul/reference.h"

namespace isobit::matmul {
namespace {

constexpr std::string_view kActivations[] = {"none", "relu", "gelu", "gelu_tanh", "silu"};
constexpr std::string_view kArithmetics[] = {"canonical", "tensor"};

constexpr Dim kDims[] = {{.name = "batch", .usual = 1, .in_parity = 3, .batch = true},
                         {.name = "m", .usual = 512, .in_parity = 37},
                         {.name = "n", .usual = 512, .in_parity = 50},
                         {.name = "k", .usual = 512, .in_parity = 1100}};

constexpr Argument kForwardArguments[] = {
    argument<&ForwardArgs::a>("a", Role::input, "batch m k", Elements::like_x, Presence::required,
                              Drawn::family)
        .with_any_strides()
        .means("(..., m, k) in f32, f16, bf16 or f64, and of any strides"),
    argument<&ForwardArgs::b>("b", Role::input, "batch k n", Elements::like_x, Presence::required,
                              Drawn::family)
        .with_any_strides()
        .means("(..., k, n) in the dtype of a, and of any strides"),
    argument<&ForwardArgs::bias>("bias", Role::input, "n", Elements::like_weight, Presence::extra,
                                 Drawn::weight)
        .with_any_strides()
        .means("(n) in the dtype of a or f32 (beside f64: f64), or NULL"),
    argument<&ForwardArgs::c>("c", Role::input, "batch m n", Elements::like_y, Presence::extra,
                              Drawn::family)
        .with_any_strides()
        .means("like y, or NULL; not read where beta is 0"),
    argument<&ForwardArgs::residual>("residual", Role::input, "batch m n", Elements::like_y,
                                     Presence::extra, Drawn::family)
        .with_any_strides()
        .means("like y, or NULL; added last"),
    argument<&ForwardArgs::y>("y", Role::output, "batch m n", Elements::like_y, Presence::required)
        .with_any_strides()
        .means("(..., m, n) in the dtype of a, f32 beside f16 and bf16, or f16 or bf16 beside f32; "
               "may be c or residual"),
    argument<&ForwardArgs::pre>("pre", Role::output, "batch m n", Elements::like_y, Presence::extra)
        .with_any_strides()
        .means("like y, or NULL; what the activation is applied to, rounded"),
};

constexpr Argument kBackwardArguments[] = {
    argument<&BackwardArgs::grad_y>("grad_y", Role::input, "batch m n", Elements::like_y,
                                    Presence::required, Drawn::gradient)
        .with_any_strides()
        .means("(..., m, n), like y of forward"),
    argument<&BackwardArgs::a>("a", Role::input, "batch m k", Elements::like_x, Presence::required,
                               Drawn::family)
        .with_any_strides()
        .means("(..., m, k) in f32, f16, bf16 or f64, and of any strides"),
    argument<&BackwardArgs::b>("b", Role::input, "batch k n", Elements::like_x, Presence::required,
                               Drawn::family)
        .with_any_strides()
        .means("(..., k, n) in the dtype of a, and of any strides"),
    argument<&BackwardArgs::pre>("pre", Role::input, "batch m n", Elements::like_y, Presence::extra,
                                 Drawn::family)
        .with_any_strides()
        .means("like grad_y: what forward put there; NULL without an activation"),
    argument<&BackwardArgs::grad_a>("grad_a", Role::output, "batch m k", Elements::like_x,
                                    Presence::optional)
        .with_any_strides()
        .means("like a, or NULL"),
    argument<&BackwardArgs::grad_b>("grad_b", Role::output, "batch k n", Elements::like_x,
                                    Presence::optional)
        .with_any_strides()
        .means("like b, or NULL"),
    argument<&BackwardArgs::grad_bias>("grad_bias", Role::output, "n", Elements::like_weight,
                                       Presence::extra)
        .with_any_strides()
        .means("(n) in the dtype of a or f32 (beside f64: f64), or NULL; the sum over all rows"),
    argument<&BackwardArgs::grad_c>("grad_c", Role::output, "batch m n", Elements::like_y,
                                    Presence::extra)
        .with_any_strides()
        .means("like grad_y, or NULL; beta times what forward's c is added to"),
};

template <class Args>
inline constexpr Option kOptions[] = {
    option<&Args::alpha>("alpha", 1).means("times a b"),
    option<&Args::beta>("beta", 0)
        .changing_plans(PlanDependence::presence)
        .means("times c; 0: c is not read"),
    option<&Args::activation>("activation", 0, kActivations)
        .means("0 none, 1 relu, 2 gelu, 3 gelu_tanh, 4 silu"),
    option<&Args::arithmetic>("arithmetic", 0, kArithmetics)
        .means(
            "0 canonical, the same bits everywhere; 1 tensor, those of a GPU's tensor cores or of "
            "AMX"),
};

template <class Args>
void check_numbers(const Checker& checker, const Args& args) {
  const int code = static_cast<int>(args.activation);
  require(0 <= code && code < std::ssize(kActivations), "matmul: activation is ", code,
          "; allowed: 0 to ", std::ssize(kActivations) - 1);
  const int arithmetic = static_cast<int>(args.arithmetic);
  require(0 <= arithmetic && arithmetic < std::ssize(kArithmetics), "matmul: arithmetic is ",
          arithmetic, "; allowed: 0 to ", std::ssize(kArithmetics) - 1);
  const DType real = args.a.dtype == DType::f64 ? DType::f64 : DType::f32;
  checker.finite("alpha", args.alpha, real);
  checker.finite("beta", args.beta, real);
}

// y and bias, by the names that a pass has for what is like them.
struct Results {
  std::string_view y_name;
  const TensorView& y;
  std::string_view bias_name;
  const TensorView& bias;
};

void check_dtypes(const Checker& checker, const Results& results, const TensorView& a,
                  const TensorView& b) {
  checker.dtype("a", a, {DType::f32, DType::f16, DType::bf16, DType::f64});
  checker.same_dtype("b", b, "a", a.dtype);
  const auto& [y_name, y, bias_name, bias] = results;
  switch (a.dtype) {
    case DType::f32: checker.dtype(y_name, y, {DType::f32, DType::f16, DType::bf16}); break;
    case DType::f64: checker.dtype(y_name, y, {DType::f64}); break;
    default:         checker.dtype(y_name, y, {a.dtype, DType::f32}); break;
  }
  if (!bias.given()) return;
  if (a.dtype == DType::f64)
    checker.dtype(bias_name, bias, {DType::f64});
  else
    checker.dtype(bias_name, bias, {a.dtype, DType::f32});
}

void check_products(const Checker& checker, const TensorView& a, const TensorView& b,
                    std::string_view y_name, const TensorView& y) {
  const int rank = a.rank;
  require(rank >= 2, "matmul: a has 1 dimension; must have at least 2");
  require(b.rank == rank, "matmul: b has ", b.rank, " dimensions; a has ", rank);
  TensorView expected = a;
  expected.shape[rank - 2] = a.shape[rank - 1];
  expected.shape[rank - 1] = b.shape[rank - 1];
  checker.same_shape("b", b, "a's batch, its k and n", expected);
  expected.shape[rank - 2] = a.shape[rank - 2];
  checker.same_shape(y_name, y, "the product of a and b", expected);
}

void check_bias(std::string_view name, const TensorView& bias, const TensorView& b) {
  const std::int64_t n = b.shape[b.rank - 1];
  if (bias.given())
    require(bias.rank == 1 && bias.shape[0] == n, "matmul: ", name, " has ", bias.rank,
            " dimensions and ", bias.shape[0], " elements; must have 1 dimension and ", n,
            " elements");
}

void check_like(const Checker& checker, std::string_view name, const TensorView& view,
                Access access, std::string_view other_name, const TensorView& other) {
  if (!view.given()) return;
  checker.any_strides(name, view, access);
  checker.same_dtype(name, view, other_name, other.dtype);
  checker.same_shape(name, view, other_name, other);
}

Matrix span(const TensorView& view) { return view.given() ? Checker::span(view) : Matrix{}; }

// What starts where y does is y itself, or its elements would be overwritten before they are read.
void check_in_place(std::string_view name, const TensorView& view, const TensorView& y) {
  if (!view.given() || view.data != y.data) return;
  for (int i = 0; i < y.rank; ++i)
    require(y.shape[i] <= 1 || view.strides[i] == y.strides[i], "matmul: y starts where ", name,
            " does, but has other strides");
}

}  // namespace

Problem check_forward(const ForwardArgs& args) {
  const Checker checker("matmul");
  check_numbers(checker, args);
  checker.any_strides("a", args.a, Access::read);
  checker.any_strides("b", args.b, Access::read);
  checker.any_strides("y", args.y, Access::write);
  if (args.bias.given()) checker.any_strides("bias", args.bias, Access::read);
  check_dtypes(checker, {"y", args.y, "bias", args.bias}, args.a, args.b);
  check_products(checker, args.a, args.b, "y", args.y);
  check_bias("bias", args.bias, args.b);
  const auto like_y = [&](std::string_view name, const TensorView& view, Access access) {
    check_like(checker, name, view, access, "y", args.y);
  };
  like_y("c", args.c, Access::read);
  like_y("residual", args.residual, Access::read);
  like_y("pre", args.pre, Access::write);
  require(args.beta == 0 || args.c.given(), "matmul: beta is ", args.beta, ", but c is not given");
  checker.no_overlap(
      {{"y", args.y, span(args.y), {"c", "residual"}}, {"pre", args.pre, span(args.pre)}},
      {{"a", args.a, span(args.a)},
       {"b", args.b, span(args.b)},
       {"bias", args.bias, span(args.bias)},
       {"c", args.c, span(args.c)},
       {"residual", args.residual, span(args.residual)}});
  check_in_place("c", args.c, args.y);
  check_in_place("residual", args.residual, args.y);

  return problem_of(args, args.a.dtype);
}

namespace {

BackwardProblem check_backward(const BackwardArgs& args) {
  const Checker checker("matmul");
  check_numbers(checker, args);
  checker.any_strides("grad_y", args.grad_y, Access::read);
  checker.any_strides("a", args.a, Access::read);
  checker.any_strides("b", args.b, Access::read);
  check_dtypes(checker, {"grad_y", args.grad_y, "grad_bias", args.grad_bias}, args.a, args.b);
  check_products(checker, args.a, args.b, "grad_y", args.grad_y);
  const bool bends = args.activation != Activation::none;
  require(!bends || args.pre.given(), "matmul: activation is ",
          kActivations[static_cast<std::size_t>(args.activation)], ", but pre is not given");
  check_like(checker, "pre", args.pre, Access::read, "grad_y", args.grad_y);
  check_like(checker, "grad_a", args.grad_a, Access::write, "a", args.a);
  check_like(checker, "grad_b", args.grad_b, Access::write, "b", args.b);
  check_like(checker, "grad_c", args.grad_c, Access::write, "grad_y", args.grad_y);
  if (args.grad_bias.given()) checker.any_strides("grad_bias", args.grad_bias, Access::write);
  check_bias("grad_bias", args.grad_bias, args.b);
  checker.no_overlap({{"grad_a", args.grad_a, span(args.grad_a)},
                      {"grad_b", args.grad_b, span(args.grad_b)},
                      {"grad_bias", args.grad_bias, span(args.grad_bias)},
                      {"grad_c", args.grad_c, span(args.grad_c)}},
                     {{"grad_y", args.grad_y, span(args.grad_y)},
                      {"a", args.a, span(args.a)},
                      {"b", args.b, span(args.b)},
                      {"pre", args.pre, span(args.pre)}});

  const TensorView slope = bends ? args.pre : TensorView{};
  const bool derived = bends || args.grad_y.dtype != args.a.dtype;
  const auto prepared = [&](ForwardArgs product, Derived operand) {
    product.alpha = args.alpha;
    product.arithmetic = args.arithmetic;
    return problem_of(product, args.a.dtype, slope, derived ? operand : Derived::none,
                      args.activation);
  };
  BackwardProblem problem;
  problem.wants_a = args.grad_a.given();
  problem.wants_b = args.grad_b.given();
  if (problem.wants_a)
    problem.to_a = prepared({.a = args.grad_y, .b = turned(args.b), .y = args.grad_a}, Derived::a);
  if (problem.wants_b)
    problem.to_b = prepared({.a = turned(args.a), .b = args.grad_y, .y = args.grad_b}, Derived::b);
  problem.rows = rows_problem(args, slope);
  return problem;
}

// Nothing stands in for tensor cores where there are none; processors without AMX have its order.
std::string refuses(Arithmetic arithmetic, DType element, const Machine& machine) {
  if (arithmetic == Arithmetic::canonical) return {};
  const bool able = machine.device == Device::cpu
                        ? element == DType::bf16
                        : size_of(element) == 2 && machine.gpu.capability >= 80;
  if (able) return {};
  return "arithmetic tensor needs bf16 on a processor, or f16 or bf16 on a GPU with tensor cores "
         "(sm_80 and later); use canonical";
}
std::string refuses_backward(const BackwardProblem& problem, const Machine& machine) {
  return refuses(problem.rows.arithmetic, problem.rows.element, machine);
}

}  // namespace

std::string refuses_forward(const Problem& problem, const Machine& machine) {
  return refuses(problem.arithmetic, problem.element, machine);
}

namespace {

template <class Args>
Extents extents(const Args& args) {
  const int rank = args.a.rank;
  Extents result{1, args.a.shape[rank - 2], args.b.shape[rank - 1], args.a.shape[rank - 1]};
  for (int i = 0; i + 2 < rank; ++i) result[0] *= args.a.shape[i];
  return result;
}

const Definition<ForwardArgs, Problem>& forward_definition() {
  static const Definition<ForwardArgs, Problem> kDefinition = {
      .op = "matmul",
      .pass = "fwd",
      .summary =
          "y = activation(alpha a b + beta c + bias) + residual, of matrices or batches of them.",
      .version = 1,
      .dims = kDims,
      .arguments = kForwardArguments,
      .options = kOptions<ForwardArgs>,
      .check = check_forward,
      .extents = extents<ForwardArgs>,
      .refuses = refuses_forward,
      .variants = cpu_forward_variants(),
      .cost = forward_cost,
      .cases = forward_cases,
      .reference = forward_reference,
      .intermediates = forward_intermediates,
      .limit = forward_limit};
  return kDefinition;
}

const Definition<BackwardArgs, BackwardProblem>& backward_definition() {
  static const Definition<BackwardArgs, BackwardProblem> kDefinition = {
      .op = "matmul",
      .pass = "bwd",
      .summary =
          "The gradients of matmul: with s = grad_y activation'(pre), grad_a = alpha s b', "
          "grad_b = alpha a' s, grad_bias the sum of s over its rows, grad_c = beta s.",
      .version = 1,
      .dims = kDims,
      .arguments = kBackwardArguments,
      .options = kOptions<BackwardArgs>,
      .check = check_backward,
      .extents = extents<BackwardArgs>,
      .refuses = refuses_backward,
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
  static const TypedOperation<BackwardArgs, BackwardProblem> kOperation(backward_definition());
  return kOperation;
}

}  // namespace isobit::matmul
