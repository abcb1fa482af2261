// SPDX-License-Identifier: Apache-2.0
// The products as PyTorch's dispatcher calls them.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

void matmul(StableIValue* stack, std::uint64_t, std::uint64_t);
// And what the activation was applied to.
void activated_matmul(StableIValue* stack, std::uint64_t, std::uint64_t);
void matmul_backward(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
