// SPDX-License-Identifier: Apache-2.0
// The kernels that operators.cpp lists and pointwise_loss.cpp defines.
#pragma once

#include "isobit/torch/stack.h"

namespace isobit::torch {

void pointwise_loss(StableIValue* stack, std::uint64_t, std::uint64_t);
void pointwise_loss_backward(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
