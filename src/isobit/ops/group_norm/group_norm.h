// SPDX-License-Identifier: Apache-2.0
// What a caller of group_norm includes: groups of channels of each image, normalised together, and
// the gradients.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/ops/channel_norm/channel_norm.h"

namespace isobit {
class Operation;
}

namespace isobit::group_norm {

// Of groups of channels of each image.
using ForwardArgs = channel_norm::GroupForwardArgs;
using BackwardArgs = channel_norm::GroupBackwardArgs;

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::group_norm
