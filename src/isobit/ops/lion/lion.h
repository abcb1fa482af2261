// SPDX-License-Identifier: Apache-2.0
// What a caller of lion includes: a step of Lion.
#pragma once

#include <cstdint>

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::lion {

// A step of Lion: by the sign of an average of the gradient. Results may take the places of what
// they are made of.
struct Args {
  TensorView param;        // (..., cols)
  TensorView grad;         // like param; of 16 bits beside f32 too
  TensorView exp_avg;      // like param
  TensorView new_param;    // like param
  TensorView new_exp_avg;  // like param
  TensorView narrow = {};  // new_param in grad's type, optional
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  bool maximize = false;
};

void run(const Args& args, const Execution& execution);

const Operation& operation();

}  // namespace isobit::lion
