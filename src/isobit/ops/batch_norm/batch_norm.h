// SPDX-License-Identifier: Apache-2.0
// What a caller of batch_norm includes: each channel normalised over all images, or by statistics
// that were gathered before, and the gradients.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/ops/channel_norm/channel_norm.h"

namespace isobit {
class Operation;
}

namespace isobit::batch_norm {

// Of each channel over all images, or by running statistics.
using ForwardArgs = channel_norm::BatchForwardArgs;
using BackwardArgs = channel_norm::BatchBackwardArgs;

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::batch_norm
