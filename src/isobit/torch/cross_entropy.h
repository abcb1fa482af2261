// SPDX-License-Identifier: Apache-2.0
// Cross entropy, by itself and behind a linear layer, as PyTorch's dispatcher calls it.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

void cross_entropy(StableIValue* stack, std::uint64_t, std::uint64_t);
void cross_entropy_backward(StableIValue* stack, std::uint64_t, std::uint64_t);
void linear_cross_entropy(StableIValue* stack, std::uint64_t, std::uint64_t);
void linear_cross_entropy_backward(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
