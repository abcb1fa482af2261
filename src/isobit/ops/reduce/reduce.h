// SPDX-License-Identifier: Apache-2.0
// What a caller of reduce includes: sums, means, spreads and norms over dimensions of an array.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::reduce {

// What becomes of the elements that one of y's is made of. l2 is the root of their squares' sum, l1
// the sum of their magnitudes, largest and smallest are of magnitudes, nonzero counts; max and min
// are of the elements themselves.
enum class Kind { sum, mean, var, std, l2, l1, largest, smallest, nonzero, max, min };

// Whether a gradient depends on elements of x.
constexpr bool reads_x(Kind kind) {
  return kind != Kind::sum && kind != Kind::mean && kind != Kind::nonzero;
}

// The first dimensions of x are those of y; over the others x is reduced. Whatever the strides, the
// order of summation is that of the reduced dimensions, the last one innermost.
struct ForwardArgs {
  TensorView x;  // (kept..., reduced...), of any strides
  TensorView y;  // (kept...), of any strides; of x's type, or f32 beside 16 bits
  Kind reduction = Kind::sum;
  double correction = 0;  // of var and std, which divide by the count less this
};

// The gradient of x, which itself may be absent where it is not read.
struct BackwardArgs {
  TensorView x;       // (kept..., reduced...), of any strides
  TensorView grad_y;  // like y of forward
  TensorView grad_x;  // like x
  Kind reduction = Kind::sum;
  double correction = 0;
};

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::reduce
