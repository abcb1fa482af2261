// SPDX-License-Identifier: Apache-2.0
// LayerNorm and the linear layer that it feeds: the description, and the public functions.
#include "isobit/ops/layernorm_linear/layernorm_linear.h"

#include "isobit/norm_linear/definition.h"
#include "isobit/ops/layernorm_linear/fused.h"

namespace isobit::layernorm_linear {
namespace {

const auto& forward_definition() {
  static const auto kDefinition = norm_linear::forward_definition<Fused>(
      "z = activation(y weight' + bias) + residual, where y = LayerNorm(x), with norm_weight and "
      "norm_bias"
      ", rounded to the dtype of weight. With x_residual or dropout, s = dropout(x) + x_residual "
      "takes the place of x, rounded to the dtype of x.");
  return kDefinition;
}

const auto& backward_definition() {
  static const auto kDefinition = norm_linear::backward_definition<Fused>(
      "The gradients of layernorm_linear_forward. Of forward's results it takes pre alone, and "
      "that "
      "only where there is an activation: statistics and y are computed from x again.");
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
  static const TypedOperation kOperation(forward_definition());
  return kOperation;
}
const Operation& backward_operation() {
  static const TypedOperation kOperation(backward_definition());
  return kOperation;
}

}  // namespace isobit::layernorm_linear
