// SPDX-License-Identifier: Apache-2.0
// What a caller of sgd includes: a step of stochastic gradient descent.
#pragma once

#include <cstdint>

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::sgd {

// A step along the gradient, or along its average. Results may take the places of what they are
// made of.
struct Args {
  TensorView param;                 // (..., cols)
  TensorView grad;                  // like param; of 16 bits beside f32 too
  TensorView momentum_buffer = {};  // like param; absent at the first step with momentum
  TensorView new_param;             // like param
  TensorView new_momentum_buffer = {};
  TensorView narrow = {};  // new_param in grad's type, optional
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

void run(const Args& args, const Execution& execution);

const Operation& operation();

}  // namespace isobit::sgd
