// SPDX-License-Identifier: Apache-2.0
// What a caller of dropout includes: elements of x, or none, by a seed and their places.
#pragma once

#include <cstdint>

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::dropout {

// Each element is 0 with probability p, and otherwise x / (1 - p). Which ones are kept depends on
// the seed, the row and the column alone, and is what norms with dropout keep. The gradient of x is
// the same of the gradient of y.
struct Args {
  TensorView x;  // (..., cols), f32, f16, bf16 or f64
  TensorView y;  // like x; may be x
  double p = 0.5;
  std::uint64_t dropout_seed = 0;
};

void run(const Args& args, const Execution& execution);

const Operation& operation();

}  // namespace isobit::dropout
