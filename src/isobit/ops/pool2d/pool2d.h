// SPDX-License-Identifier: Apache-2.0
// What a caller of pool2d includes: the largest element or the mean of windows of images, and the
// gradients of both.
#pragma once

#include <cstdint>

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::pool2d {

enum class Reduction { max, average };

// Along each side windows have `window` elements; or, with a window of 0, `bins` of them share the
// side as evenly as they can: bin i begins at floor(i side / bins) and ends before
// ceil((i + 1) side / bins). Arrays may have any strides, so that channels may come last in memory.
struct ForwardArgs {
  TensorView x;           // (batch, channels, height, width)
  TensorView y;           // (batch, channels, out_height, out_width)
  TensorView index = {};  // like y, i64, optional: where in its plane the largest element stands
  Reduction reduction = Reduction::max;
  std::int64_t window_h = 0, window_w = 0;      // 0: bins
  std::int64_t bins_h = 1, bins_w = 1;          // beside a window of 0
  std::int64_t stride_h = 0, stride_w = 0;      // 0: as the window
  std::int64_t padding_h = 0, padding_w = 0;    // before the first element and behind the last
  std::int64_t dilation_h = 1, dilation_w = 1;  // of max
  bool ceil_mode = false;                       // windows may end behind the padding
  bool count_include_pad = false;               // a mean's divisor counts the padding
  std::int64_t divisor = 0;                     // of a mean, in the place of a count; 0: none
};

// The gradient of x: of each element the sum over the windows that it had a part in.
struct BackwardArgs {
  TensorView grad_y;      // (batch, channels, out_height, out_width)
  TensorView index = {};  // of max: what forward gave
  TensorView grad_x;      // (batch, channels, height, width)
  Reduction reduction = Reduction::max;
  std::int64_t window_h = 0, window_w = 0;
  std::int64_t bins_h = 1, bins_w = 1;
  std::int64_t stride_h = 0, stride_w = 0;
  std::int64_t padding_h = 0, padding_w = 0;
  std::int64_t dilation_h = 1, dilation_w = 1;
  bool ceil_mode = false;
  bool count_include_pad = false;
  std::int64_t divisor = 0;
};

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::pool2d
