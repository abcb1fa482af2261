// SPDX-License-Identifier: Apache-2.0
// What a caller of adam includes: a step of Adam or AdamW.
#pragma once

#include <cstdint>

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::adam {

// A step of Adam: averages of the gradient and of its square, both corrected for their start at 0.
// Results may take the places of what they are made of.
struct Args {
  TensorView param;                // (..., cols)
  TensorView grad;                 // like param; of 16 bits beside f32 too
  TensorView exp_avg, exp_avg_sq;  // like param
  TensorView max_exp_avg_sq = {};  // like param, optional: AMSGrad
  TensorView new_param;            // like param
  TensorView new_exp_avg, new_exp_avg_sq, new_max_exp_avg_sq = {};
  TensorView narrow = {};  // new_param in grad's type, optional
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  std::int64_t step = 1;   // the first is 1
  bool decoupled = false;  // the decay of AdamW
  bool maximize = false;
};

void run(const Args& args, const Execution& execution);

const Operation& operation();

}  // namespace isobit::adam
