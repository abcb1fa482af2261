// SPDX-License-Identifier: Apache-2.0
// What a caller of transpose includes: the last two dimensions exchanged, in new memory.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::transpose {

// y[..., j, i] = x[..., i, j]. Both may have any strides. y has the dtype of x, and then the very
// bytes of x; or both are floating, and each element is rounded once.
struct Args {
  TensorView x;  // (..., rows, cols)
  TensorView y;  // (..., cols, rows)
};

void run(const Args& args, const Execution& execution);

const Operation& operation();

}  // namespace isobit::transpose
