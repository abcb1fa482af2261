// SPDX-License-Identifier: Apache-2.0
// What a caller of activation includes: a function of every element, forward and backward, and the
// same as a gate.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::activation {

enum class Function { exp, log, sigmoid, tanh, gelu, gelu_tanh, silu };

// y = f(x); with a gate, y = x * f(gate). y may be x or gate.
struct ForwardArgs {
  TensorView x;          // (..., cols)
  TensorView gate = {};  // like x, optional
  TensorView y;          // like x
  Function function = Function::exp;
};

// grad_x = grad_y * f'(x); with a gate, grad_x = grad_y * f(gate) and grad_gate = grad_y * x *
// f'(gate). Outputs may be inputs.
struct BackwardArgs {
  TensorView x;               // (..., cols)
  TensorView grad_y;          // like x
  TensorView gate = {};       // like x, optional
  TensorView grad_x;          // like x
  TensorView grad_gate = {};  // like x, optional, beside a gate
  Function function = Function::exp;
};

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::activation
