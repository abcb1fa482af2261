// SPDX-License-Identifier: Apache-2.0
// What a caller of cross_entropy includes: the loss of rows of logits beside the class that each
// should have named, forward and backward.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::cross_entropy {

// loss = w[t] ((1 - s) (lse - x[t]) + z lse^2) + s / cols * sum of w[c] (lse - x[c]), with lse the
// logarithm of the sum of exp(x), t the row's target, w the weights (1 where there are none), s the
// label smoothing, and z = z_loss. A row whose target is ignore_index is not read: 0. On the
// processor any other target that is no class is an error; on a device its row is NaN.
struct ForwardArgs {
  TensorView x;             // (..., cols), the logits of the classes
  TensorView target;        // (...) in i64
  TensorView weight = {};   // (cols), of classes, optional
  TensorView loss;          // (...)
  TensorView lse = {};      // (...), optional
  TensorView largest = {};  // (...), optional, for backward: the largest element of the row
  TensorView sum = {};      // (...), optional, for backward: the sum of exp(x - largest)
  TensorView total = {};    // (1), optional: the sum of loss
  TensorView count = {};    // (1), optional: the sum of w[t], whose quotient is the mean
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  double z_loss = 0;
};

// The gradient of x from that of loss. grad_x may be x.
struct BackwardArgs {
  TensorView grad_loss;  // (...)
  TensorView x, target;  // as in forward
  TensorView weight = {};
  TensorView largest, sum;  // as forward gave them
  TensorView grad_x;        // like x
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  double z_loss = 0;
};

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::cross_entropy
