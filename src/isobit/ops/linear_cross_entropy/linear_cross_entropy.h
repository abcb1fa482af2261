// SPDX-License-Identifier: Apache-2.0
// What a caller of linear_cross_entropy includes: the cross entropy of logits that a linear layer
// makes, forward and backward, without an array of all logits.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::linear_cross_entropy {

// The losses of cross_entropy, of logits = x weight' + bias, each rounded to the type of x.
struct ForwardArgs {
  TensorView x;                  // (..., cols)
  TensorView weight;             // (classes, cols), like x
  TensorView bias = {};          // (classes), optional
  TensorView target;             // (...) in i64
  TensorView class_weight = {};  // (classes), optional
  TensorView loss;               // (...)
  TensorView lse = {};           // (...), optional
  TensorView largest = {};       // (...), optional, for backward
  TensorView sum = {};           // (...), optional, for backward
  TensorView total = {};         // (1), optional: the sum of loss
  TensorView count = {};         // (1), optional: the sum of the targets' weights
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  double z_loss = 0;
};

// The gradients, each where it is given; that of logits is rounded to the type of x. grad_x may be
// x.
struct BackwardArgs {
  TensorView grad_loss;  // (...)
  TensorView x, weight;  // as in forward
  TensorView bias = {};
  TensorView target;
  TensorView class_weight = {};
  TensorView largest, sum;      // as forward gave them
  TensorView grad_x = {};       // like x, optional
  TensorView grad_weight = {};  // like weight, optional
  TensorView grad_bias = {};    // (classes), optional
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  double z_loss = 0;
};

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::linear_cross_entropy
