// SPDX-License-Identifier: Apache-2.0
// Layer normalisation over the last dimensions, forward and backward.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::layernorm {

// y = (x - mean) / sqrt(var + eps) * weight + bias, row by row. With residual or dropout,
// s = dropout(x) + residual takes the place of x. y and sum may be x or residual.
struct ForwardArgs {
  TensorView x;                       // (..., hidden)
  TensorView residual = {};           // like x, optional
  TensorView weight = {}, bias = {};  // (hidden), optional; of x's type or f32
  TensorView y;                       // like x; f32, f16 or bf16 as you like, f64 beside f64
  TensorView sum = {};                // like x, optional output: s
  TensorView mean = {}, rstd = {};    // (rows), optional outputs; f32, or f64 beside f64
  double eps = 1e-5;
  bool zero_centered = false;  // the weight is stored less 1
  double dropout = 0;          // the probability with which an element of x is dropped
  std::uint64_t dropout_seed = 0;
  std::int64_t hidden_dims = 1;  // so many last dimensions are normalised together
};

// Every output is optional. Without mean and rstd the statistics are computed from x again, which
// is more exact than any stored float. grad_x and grad_residual may be x, grad_y or grad_sum.
struct BackwardArgs {
  TensorView x;            // (..., hidden): what was normalised, that is sum where there was one
  TensorView grad_y;       // like y
  TensorView weight = {};  // (hidden), optional
  TensorView mean = {}, rstd = {};  // (rows), both or neither
  TensorView grad_sum = {};         // like x, optional: what else flows into sum
  TensorView grad_x = {},
             grad_residual = {};  // like x; grad_residual with dropout only: without, it is grad_x
  TensorView grad_weight = {}, grad_bias = {};  // (hidden); of weight's type
  double eps = 1e-5;
  bool zero_centered = false;
  double dropout = 0;
  std::uint64_t dropout_seed = 0;
  std::int64_t hidden_dims = 1;
};

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::layernorm
