// SPDX-License-Identifier: Apache-2.0
// The LayerNorm operator: its rules, its arguments, and what it is made of.
#include "isobit/ops/layernorm/layernorm.h"

#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/layernorm/cases.h"
#include "isobit/ops/layernorm/problem.h"
#include "isobit/ops/layernorm/reference.h"

namespace isobit::layernorm {
namespace {

constexpr auto kInput = Role::input;
constexpr auto kOutput = Role::output;
constexpr auto kMatrix = Extent::matrix;
constexpr auto kPerColumn = Extent::row_vector;
constexpr auto kPerRow = Extent::row_statistic;
constexpr auto kLikeX = Elements::like_x;
constexpr auto kLikeWeight = Elements::like_weight;
constexpr auto kStatistic = Elements::statistic;
constexpr auto kRequired = Presence::required;
constexpr auto kOptional = Presence::optional;

constexpr Argument kForwardArguments[] = {
    argument<&ForwardArgs::x>("x", kInput, kMatrix, kLikeX, kRequired),
    argument<&ForwardArgs::weight>("weight", kInput, kPerColumn, kLikeWeight, kOptional),
    argument<&ForwardArgs::bias>("bias", kInput, kPerColumn, kLikeWeight, kOptional),
    argument<&ForwardArgs::y>("y", kOutput, kMatrix, kLikeX, kRequired),
    argument<&ForwardArgs::mean>("mean", kOutput, kPerRow, kStatistic, kOptional),
    argument<&ForwardArgs::rstd>("rstd", kOutput, kPerRow, kStatistic, kOptional),
};
constexpr Option kForwardOptions[] = {option<&ForwardArgs::eps>("eps", 1e-5)};

constexpr Argument kBackwardArguments[] = {
    argument<&BackwardArgs::x>("x", kInput, kMatrix, kLikeX, kRequired),
    argument<&BackwardArgs::grad_y>("grad_y", kInput, kMatrix, kLikeX, kRequired),
    argument<&BackwardArgs::weight>("weight", kInput, kPerColumn, kLikeWeight, kOptional),
    argument<&BackwardArgs::mean>("mean", kInput, kPerRow, kStatistic, kOptional),
    argument<&BackwardArgs::rstd>("rstd", kInput, kPerRow, kStatistic, kOptional),
    argument<&BackwardArgs::grad_x>("grad_x", kOutput, kMatrix, kLikeX, kOptional),
    argument<&BackwardArgs::grad_weight>("grad_weight", kOutput, kPerColumn, kLikeWeight,
                                         kOptional),
    argument<&BackwardArgs::grad_bias>("grad_bias", kOutput, kPerColumn, kLikeWeight, kOptional),
};
constexpr Option kBackwardOptions[] = {option<&BackwardArgs::eps>("eps", 1e-5)};

// The dtype that all given weights share; x's where none is given.
DType weights_dtype(const Checker& checker, DType x,
                    std::initializer_list<Checker::Named> weights) {
  const Checker::Named* first = nullptr;
  for (const Checker::Named& weight : weights) {
    if (!weight.view.given()) continue;
    if (first == nullptr) {
      checker.dtype(weight.name, weight.view, {x, DType::f32});
      first = &weight;
    }
    checker.same_dtype(weight.name, weight.view, first->name, first->view.dtype);
  }
  return first == nullptr ? x : first->view.dtype;
}

float* statistic(const Checker& checker, std::string_view name, const TensorView& view,
                 std::int64_t rows) {
  if (view.given()) checker.dtype(name, view, {DType::f32});
  return reinterpret_cast<float*>(checker.vector(name, view, rows, "rows").data);
}

ForwardProblem check(const ForwardArgs& args) {
  const Checker checker("layernorm");
  checker.dtype("x", args.x, {DType::f32, DType::bf16});
  const Matrix x = checker.matrix("x", args.x, Access::read);
  const Matrix y = checker.matrix_like("y", args.y, Access::write, "x", args.x);
  checker.same_dtype("y", args.y, "x", args.x.dtype);
  const Matrix weight = checker.vector("weight", args.weight, x.cols, "columns");
  const Matrix bias = checker.vector("bias", args.bias, x.cols, "columns");
  float* mean = statistic(checker, "mean", args.mean, x.rows);
  float* rstd = statistic(checker, "rstd", args.rstd, x.rows);
  const auto per_row = [&](float* data) {
    return Matrix{reinterpret_cast<std::byte*>(data), 1, x.rows, x.rows};
  };
  checker.no_overlap(
      {{"y", args.y, y}, {"mean", args.mean, per_row(mean)}, {"rstd", args.rstd, per_row(rstd)}},
      {{"x", args.x, x}, {"weight", args.weight, weight}, {"bias", args.bias, bias}}, {"x"});
  // Rows without columns leave nothing to do but their statistics.
  return {.rows = x.cols > 0 || mean != nullptr || rstd != nullptr ? x.rows : 0,
          .cols = x.cols,
          .dtype = args.x.dtype,
          .weight_dtype = weights_dtype(
              checker, args.x.dtype, {{"weight", args.weight, weight}, {"bias", args.bias, bias}}),
          .x = x,
          .y = y,
          .weight = weight.data,
          .bias = bias.data,
          .mean = mean,
          .rstd = rstd,
          .eps = checker.finite_float("eps", args.eps)};
}

BackwardProblem check(const BackwardArgs& args) {
  const Checker checker("layernorm backward");
  checker.dtype("x", args.x, {DType::f32, DType::bf16});
  const Matrix x = checker.matrix("x", args.x, Access::read);
  const Matrix grad_y = checker.matrix_like("grad_y", args.grad_y, Access::read, "x", args.x);
  checker.same_dtype("grad_y", args.grad_y, "x", args.x.dtype);
  const auto per_column = [&](std::string_view name, const TensorView& view) {
    return checker.vector(name, view, x.cols, "columns");
  };
  const Matrix weight = per_column("weight", args.weight);
  const Matrix grad_weight = per_column("grad_weight", args.grad_weight);
  const Matrix grad_bias = per_column("grad_bias", args.grad_bias);
  require(args.mean.given() == args.rstd.given(), "layernorm backward: ",
          args.mean.given() ? "mean is given without rstd" : "rstd is given without mean",
          "; both are needed, or neither");
  float* mean = statistic(checker, "mean", args.mean, x.rows);
  float* rstd = statistic(checker, "rstd", args.rstd, x.rows);
  Matrix grad_x;
  if (args.grad_x.given()) {
    grad_x = checker.matrix_like("grad_x", args.grad_x, Access::write, "x", args.x);
    checker.same_dtype("grad_x", args.grad_x, "x", args.x.dtype);
  }
  const auto per_row = [&](float* data) {
    return Matrix{reinterpret_cast<std::byte*>(data), 1, x.rows, x.rows};
  };
  checker.no_overlap({{"grad_x", args.grad_x, grad_x},
                      {"grad_weight", args.grad_weight, grad_weight},
                      {"grad_bias", args.grad_bias, grad_bias}},
                     {{"x", args.x, x},
                      {"grad_y", args.grad_y, grad_y},
                      {"weight", args.weight, weight},
                      {"mean", args.mean, per_row(mean)},
                      {"rstd", args.rstd, per_row(rstd)}},
                     {"x", "grad_y"});
  const bool wanted = grad_x || grad_weight || grad_bias;
  return {.rows = wanted && x.cols > 0 ? x.rows : 0,
          .cols = x.cols,
          .dtype = args.x.dtype,
          .weight_dtype = weights_dtype(checker, args.x.dtype,
                                        {{"weight", args.weight, weight},
                                         {"grad_weight", args.grad_weight, grad_weight},
                                         {"grad_bias", args.grad_bias, grad_bias}}),
          .x = x,
          .grad_y = grad_y,
          .grad_x = grad_x,
          .wants_grad_x = args.grad_x.given(),
          .weight = weight.data,
          .grad_weight = grad_weight.data,
          .grad_bias = grad_bias.data,
          .mean = mean,
          .rstd = rstd,
          .eps = checker.finite_float("eps", args.eps)};
}

const Definition<ForwardArgs, ForwardProblem>& forward_definition() {
  static const Definition<ForwardArgs, ForwardProblem> kDefinition = {
      "layernorm",          "fwd",         kForwardArguments,
      kForwardOptions,      check,         cpu_forward_variants(),
      forward_cost,         forward_cases, forward_reference,
      forward_intermediates};
  return kDefinition;
}

const Definition<BackwardArgs, BackwardProblem>& backward_definition() {
  static const Definition<BackwardArgs, BackwardProblem> kDefinition = {
      "layernorm",           "bwd",          kBackwardArguments,
      kBackwardOptions,      check,          cpu_backward_variants(),
      backward_cost,         backward_cases, backward_reference,
      backward_intermediates};
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

}  // namespace isobit::layernorm
