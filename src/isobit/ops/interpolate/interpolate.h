// SPDX-License-Identifier: Apache-2.0
// What a caller of interpolate includes: images of another size, and the gradient of it.
#pragma once

#include <cstdint>

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::interpolate {

// Both sides by the same rule, each by itself: what has one dimension is an image of height 1.
enum class Mode { nearest, nearest_exact, linear, cubic };

// Arrays may have any strides, so that channels may come last in memory.
struct ForwardArgs {
  TensorView x;  // (batch, channels, height, width)
  TensorView y;  // (batch, channels, out_height, out_width)
  Mode mode = Mode::nearest;
  bool align_corners = false;       // of linear and cubic: the corners of x are those of y
  double scale_h = 0, scale_w = 0;  // results a row or column of x; 0: as the sizes say
};

// The gradient of x: of each element the sum over the results that it has a part in.
struct BackwardArgs {
  TensorView grad_y;  // (batch, channels, out_height, out_width)
  TensorView grad_x;  // (batch, channels, height, width)
  Mode mode = Mode::nearest;
  bool align_corners = false;
  double scale_h = 0, scale_w = 0;
};

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::interpolate
