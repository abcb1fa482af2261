// SPDX-License-Identifier: Apache-2.0
// What a caller of pointwise_loss includes: a loss of every element and its target, forward and
// backward.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::pointwise_loss {

enum class Kind { mse, l1, smooth_l1, huber, bce_with_logits };

struct ForwardArgs {
  TensorView x;                // (..., cols)
  TensorView target;           // like x
  TensorView weight = {};      // like x, optional: what a loss is multiplied by
  TensorView pos_weight = {};  // like x, optional: of bce_with_logits
  TensorView loss;             // (..., cols), f32, or f64 beside f64
  Kind function = Kind::mse;
  double beta = 1;  // of smooth_l1 and huber: where they go from squares to magnitudes
};

struct BackwardArgs {
  TensorView x;
  TensorView target;
  TensorView weight = {};
  TensorView pos_weight = {};
  TensorView grad_loss;  // like loss
  TensorView grad_x;     // like x; may be x or target
  Kind function = Kind::mse;
  double beta = 1;
};

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::pointwise_loss
