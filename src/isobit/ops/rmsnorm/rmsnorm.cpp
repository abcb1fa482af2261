// SPDX-License-Identifier: Apache-2.0
// The RMSNorm operator: its arguments, and what it is made of.
#include "isobit/ops/rmsnorm/rmsnorm.h"

#include "isobit/dispatch/definition.h"
#include "isobit/norms/check.h"
#include "isobit/norms/options.h"
#include "isobit/ops/rmsnorm/cases.h"
#include "isobit/ops/rmsnorm/problem.h"
#include "isobit/ops/rmsnorm/reference.h"

namespace isobit::rmsnorm {
namespace {

using namespace norms::described;

constexpr Argument kForwardArguments[] = {
    argument<&ForwardArgs::x>("x", kInput, kMatrix, kLikeX, kRequired),
    argument<&ForwardArgs::weight>("weight", kInput, kPerColumn, kLikeWeight, kOptional),
    argument<&ForwardArgs::residual>("residual", kInput, kMatrix, kLikeX, kExtra),
    argument<&ForwardArgs::y>("y", kOutput, kMatrix, kLikeY, kRequired),
    argument<&ForwardArgs::sum>("sum", kOutput, kMatrix, kLikeX, kExtra),
    argument<&ForwardArgs::rstd>("rstd", kOutput, kPerRow, kStatistic, kOptional),
};
constexpr auto kForwardOptions = norms::options<ForwardArgs>();

constexpr Argument kBackwardArguments[] = {
    argument<&BackwardArgs::x>("x", kInput, kMatrix, kLikeX, kRequired),
    argument<&BackwardArgs::grad_y>("grad_y", kInput, kMatrix, kLikeY, kRequired),
    argument<&BackwardArgs::weight>("weight", kInput, kPerColumn, kLikeWeight, kOptional),
    argument<&BackwardArgs::rstd>("rstd", kInput, kPerRow, kStatistic, kOptional),
    argument<&BackwardArgs::grad_sum>("grad_sum", kInput, kMatrix, kLikeX, kExtra),
    argument<&BackwardArgs::grad_x>("grad_x", kOutput, kMatrix, kLikeX, kOptional),
    argument<&BackwardArgs::grad_residual>("grad_residual", kOutput, kMatrix, kLikeX, kExtra),
    argument<&BackwardArgs::grad_weight>("grad_weight", kOutput, kPerColumn, kLikeWeight,
                                         kOptional),
};
constexpr auto kBackwardOptions = norms::options<BackwardArgs>();

const Definition<ForwardArgs, norms::ForwardProblem>& forward_definition() {
  static const Definition<ForwardArgs, norms::ForwardProblem> kDefinition = {
      .op = "rmsnorm",
      .pass = "fwd",
      .arguments = kForwardArguments,
      .options = kForwardOptions,
      .check = [](const ForwardArgs& args) { return norms::check_forward("rmsnorm", args); },
      .variants = cpu_forward_variants(),
      .cost = forward_cost,
      .cases = forward_cases,
      .reference = forward_reference,
      .intermediates = forward_intermediates};
  return kDefinition;
}

const Definition<BackwardArgs, norms::BackwardProblem>& backward_definition() {
  static const Definition<BackwardArgs, norms::BackwardProblem> kDefinition = {
      .op = "rmsnorm",
      .pass = "bwd",
      .arguments = kBackwardArguments,
      .options = kBackwardOptions,
      .check =
          [](const BackwardArgs& args) { return norms::check_backward("rmsnorm backward", args); },
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

}  // namespace isobit::rmsnorm
