// SPDX-License-Identifier: Apache-2.0
// The LayerNorm operator: its arguments, and what it is made of.
#include "isobit/ops/layernorm/layernorm.h"

#include "isobit/dispatch/definition.h"
#include "isobit/norms/check.h"
#include "isobit/norms/options.h"
#include "isobit/ops/layernorm/cases.h"
#include "isobit/ops/layernorm/problem.h"
#include "isobit/ops/layernorm/reference.h"

namespace isobit::layernorm {
namespace {

using namespace norms::described;

constexpr Argument kForwardArguments[] = {
    argument<&ForwardArgs::x>("x", kInput, kMatrix, kLikeX, kRequired),
    argument<&ForwardArgs::weight>("weight", kInput, kPerColumn, kLikeWeight, kOptional),
    argument<&ForwardArgs::bias>("bias", kInput, kPerColumn, kLikeWeight, kOptional),
    argument<&ForwardArgs::residual>("residual", kInput, kMatrix, kLikeX, kExtra),
    argument<&ForwardArgs::y>("y", kOutput, kMatrix, kLikeY, kRequired),
    argument<&ForwardArgs::sum>("sum", kOutput, kMatrix, kLikeX, kExtra),
    argument<&ForwardArgs::mean>("mean", kOutput, kPerRow, kStatistic, kOptional),
    argument<&ForwardArgs::rstd>("rstd", kOutput, kPerRow, kStatistic, kOptional),
};
constexpr auto kForwardOptions = norms::options<ForwardArgs>();

constexpr Argument kBackwardArguments[] = {
    argument<&BackwardArgs::x>("x", kInput, kMatrix, kLikeX, kRequired),
    argument<&BackwardArgs::grad_y>("grad_y", kInput, kMatrix, kLikeY, kRequired),
    argument<&BackwardArgs::weight>("weight", kInput, kPerColumn, kLikeWeight, kOptional),
    argument<&BackwardArgs::mean>("mean", kInput, kPerRow, kStatistic, kOptional),
    argument<&BackwardArgs::rstd>("rstd", kInput, kPerRow, kStatistic, kOptional),
    argument<&BackwardArgs::grad_sum>("grad_sum", kInput, kMatrix, kLikeX, kExtra),
    argument<&BackwardArgs::grad_x>("grad_x", kOutput, kMatrix, kLikeX, kOptional),
    argument<&BackwardArgs::grad_residual>("grad_residual", kOutput, kMatrix, kLikeX, kExtra),
    argument<&BackwardArgs::grad_weight>("grad_weight", kOutput, kPerColumn, kLikeWeight,
                                         kOptional),
    argument<&BackwardArgs::grad_bias>("grad_bias", kOutput, kPerColumn, kLikeWeight, kOptional),
};
constexpr auto kBackwardOptions = norms::options<BackwardArgs>();

const Definition<ForwardArgs, norms::ForwardProblem>& forward_definition() {
  static const Definition<ForwardArgs, norms::ForwardProblem> kDefinition = {
      .op = "layernorm",
      .pass = "fwd",
      .arguments = kForwardArguments,
      .options = kForwardOptions,
      .check = [](const ForwardArgs& args) { return norms::check_forward("layernorm", args); },
      .variants = cpu_forward_variants(),
      .cost = forward_cost,
      .cases = forward_cases,
      .reference = forward_reference,
      .intermediates = forward_intermediates};
  return kDefinition;
}

const Definition<BackwardArgs, norms::BackwardProblem>& backward_definition() {
  static const Definition<BackwardArgs, norms::BackwardProblem> kDefinition = {
      .op = "layernorm",
      .pass = "bwd",
      .arguments = kBackwardArguments,
      .options = kBackwardOptions,
      .check =
          [](const BackwardArgs& args) {
            return norms::check_backward("layernorm backward", args);
          },
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
  static const TypedOperation<ForwardArgs, norms::ForwardProblem> kOperation(forward_definition());
  return kOperation;
}
const Operation& backward_operation() {
  static const TypedOperation<BackwardArgs, norms::BackwardProblem> kOperation(
      backward_definition());
  return kOperation;
}

}  // namespace isobit::layernorm
