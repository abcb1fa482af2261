// SPDX-License-Identifier: Apache-2.0
// Convolutions and their gradients as PyTorch's dispatcher calls them, of one dimension and of two.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

void convolution(StableIValue* stack, std::uint64_t, std::uint64_t);
// The gradients of its input, of its weight and of its bias.
void convolution_input(StableIValue* stack, std::uint64_t, std::uint64_t);
void convolution_weight(StableIValue* stack, std::uint64_t, std::uint64_t);
void convolution_backward(StableIValue* stack, std::uint64_t, std::uint64_t);
void convolution_bias(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
