// SPDX-License-Identifier: Apache-2.0
// Layer normalisation over the last dimension, forward and backward.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::layernorm {

// y = (x - mean) / sqrt(var + eps) * weight + bias, row by row. y may be x itself.
struct ForwardArgs {
  TensorView x;             // (..., cols)
  TensorView weight, bias;  // (cols), optional; of x's type or f32
  TensorView y;             // (..., cols)
  TensorView mean, rstd;    // (rows), optional outputs
  double eps = 1e-5;
};

// Every output is optional. Without mean and rstd the statistics are computed from x again, which
// is more exact than any stored float. grad_x may be grad_y or x itself.
struct BackwardArgs {
  TensorView x, grad_y;               // (..., cols)
  TensorView weight;                  // (cols), optional
  TensorView mean, rstd;              // (rows), both or neither
  TensorView grad_x;                  // (..., cols)
  TensorView grad_weight, grad_bias;  // (cols); of weight's type
  double eps = 1e-5;
};

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::layernorm
