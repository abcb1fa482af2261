// SPDX-License-Identifier: Apache-2.0
// What a caller of conv2d includes: convolutions in two dimensions, and their gradients.
#pragma once

#include "isobit/ops/convolution/convolution.h"

namespace isobit {
class Operation;
}

namespace isobit::conv2d {

using BackwardArgs = convolution::BackwardArgs;
using ForwardArgs = convolution::ForwardArgs;

// Of arrays (batch, channels, height, width).
void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::conv2d
