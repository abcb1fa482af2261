// SPDX-License-Identifier: Apache-2.0
// What a caller of conv1d includes: convolutions in one dimension, and their gradients.
#pragma once

#include "isobit/ops/convolution/convolution.h"

namespace isobit {
class Operation;
}

namespace isobit::conv1d {

using BackwardArgs = convolution::BackwardArgs1d;
using ForwardArgs = convolution::ForwardArgs1d;

// Of arrays (batch, channels, length).
void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::conv1d
