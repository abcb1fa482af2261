// SPDX-License-Identifier: Apache-2.0
// What a caller of elementwise includes: addition and increment of every element.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::elementwise {

enum class Kind { add, increment };

// add: y = x + residual. increment: y = x + 1. Integers wrap around; y may be x or residual itself.
struct Args {
  TensorView x, residual;  // (..., cols)
  TensorView y;            // (..., cols)
  Kind kind = Kind::add;
};

void run(const Args& args, const Execution& execution);

const Operation& operation();

}  // namespace isobit::elementwise
