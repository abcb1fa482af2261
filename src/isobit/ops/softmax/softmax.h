// SPDX-License-Identifier: Apache-2.0
// What a caller of softmax includes: the softmax of rows, or its logarithm, forward and backward.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::softmax {

// y = exp(scale x) / sum of exp(scale x) over each row, or with `log` its logarithm. Where a mask
// is false there is no element: y is 0 (log: -infinity), whatever x holds. y may be x.
struct ForwardArgs {
  TensorView x;          // (..., cols)
  TensorView mask = {};  // like x, bool, optional
  TensorView y;          // like x, or f32 beside 16 bits
  double scale = 1;
  bool log = false;
};

// grad_x = scale y (grad_y - sum of grad_y y); with `log`, scale (grad_y - exp(y) sum of grad_y).
// grad_x may be grad_y or y.
struct BackwardArgs {
  TensorView y;          // as forward gave it
  TensorView grad_y;     // like y
  TensorView mask = {};  // as in forward
  TensorView grad_x;     // like y, or 16 bits beside f32
  double scale = 1;
  bool log = false;
};

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::softmax
