// SPDX-License-Identifier: Apache-2.0
// The LayerNorm operator: its description, and its public functions.
#include "isobit/ops/layernorm/layernorm.h"

#include "isobit/norms/definition.h"
#include "isobit/ops/layernorm/norm.h"

namespace isobit::layernorm {
namespace {

const auto& forward_definition() {
  static const auto kDefinition = norms::forward_definition<Norm>(
      "y = (x - mean) / sqrt(variance + eps) * weight + bias, each row (the last "
      "dimensions) by itself. With residual or dropout, s = dropout(x) + residual "
      "takes the place of x, rounded to the dtype of x. `hidden` stands for the "
      "last hidden_dims dimensions of x, whose elements must then be adjacent; "
      "rows are evenly spaced.");
  return kDefinition;
}

const auto& backward_definition() {
  static const auto kDefinition = norms::backward_definition<Norm>(
      "The gradients of layernorm_forward. Without mean and rstd both are computed "
      "from x again, which costs no memory traffic and is more exact than what any "
      "float can hold.");
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

}  // namespace isobit::layernorm
