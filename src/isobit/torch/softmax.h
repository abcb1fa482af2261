// SPDX-License-Identifier: Apache-2.0
// Softmax as PyTorch's dispatcher calls it.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

void softmax(StableIValue* stack, std::uint64_t, std::uint64_t);
void softmax_backward(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
