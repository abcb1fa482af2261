// SPDX-License-Identifier: Apache-2.0
// What a caller of vector_norm includes: the length of each row.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::vector_norm {

// The root of the sum of squares, the sum of magnitudes, the largest magnitude.
enum class Order { l2, l1, max };

struct Args {
  TensorView x;     // (..., cols)
  TensorView norm;  // one number for each row, f32, or f64 beside f64
  Order order = Order::l2;
};

void run(const Args& args, const Execution& execution);

const Operation& operation();

}  // namespace isobit::vector_norm
