// SPDX-License-Identifier: Apache-2.0
// Root mean square normalisation and the linear layer that it feeds, forward and backward, as one
// operator.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"
#include "isobit/ops/matmul/matmul.h"

namespace isobit {
class Operation;
}

namespace isobit::rmsnorm_linear {

// pre = y weight' + bias and z = activation(pre) + residual, where y = RMSNorm(x), rounded to the
// dtype of the weight. With x_residual or dropout, s = dropout(x) + x_residual takes the place of
// x.
struct ForwardArgs {
  TensorView x;                 // (..., cols)
  TensorView x_residual = {};   // like x, optional
  TensorView norm_weight = {};  // (cols), optional; of x's type or f32
  TensorView weight;            // (features, cols) of any strides; f32, f16 or bf16, f64 beside f64
  TensorView bias = {};         // (features), optional; of weight's type or f32
  TensorView residual = {};     // like z, optional
  TensorView z;                 // (..., features) of weight's type; may be residual
  TensorView pre = {};          // like z, optional output
  TensorView sum = {};          // like x, optional output: s
  TensorView y = {};            // like x in weight's type, optional output
  TensorView rstd = {};         // (rows), optional output; f32, or f64 beside f64
  double eps = 1e-5;
  bool zero_centered = false;  // norm_weight is stored less 1
  double dropout = 0;          // the probability with which an element of x is dropped
  std::uint64_t dropout_seed = 0;
  matmul::Activation activation = matmul::Activation::none;
  matmul::Arithmetic arithmetic = matmul::Arithmetic::canonical;
};

// Every output is optional. The statistics and y are computed from x again.
struct BackwardArgs {
  TensorView grad_z;  // like z
  TensorView x;       // what was normalised: sum where there was one
  TensorView norm_weight = {};
  TensorView weight;
  TensorView pre = {};                           // like z; not read without an activation
  TensorView grad_sum = {};                      // like x, optional: what else flows into sum
  TensorView grad_x = {}, grad_x_residual = {};  // like x; the latter with dropout only
  TensorView grad_norm_weight = {};
  TensorView grad_weight = {};  // like weight
  TensorView grad_bias = {};    // (features)
  double eps = 1e-5;
  bool zero_centered = false;
  double dropout = 0;
  std::uint64_t dropout_seed = 0;
  matmul::Activation activation = matmul::Activation::none;
  matmul::Arithmetic arithmetic = matmul::Arithmetic::canonical;
};

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::rmsnorm_linear
