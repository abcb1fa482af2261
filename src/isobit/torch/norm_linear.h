// SPDX-License-Identifier: Apache-2.0
// A norm and the linear layer that it feeds, as PyTorch's dispatcher calls them.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

void layer_norm_linear(StableIValue* stack, std::uint64_t, std::uint64_t);
void rms_norm_linear(StableIValue* stack, std::uint64_t, std::uint64_t);
// And what the activation was applied to.
void activated_layer_norm_linear(StableIValue* stack, std::uint64_t, std::uint64_t);
void activated_rms_norm_linear(StableIValue* stack, std::uint64_t, std::uint64_t);
void layer_norm_linear_backward(StableIValue* stack, std::uint64_t, std::uint64_t);
void rms_norm_linear_backward(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
