// SPDX-License-Identifier: Apache-2.0
// Pooling and its gradients as PyTorch's dispatcher calls them, of images.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

// The largest elements, and where they stand.
void max_pool(StableIValue* stack, std::uint64_t, std::uint64_t);
void max_pool_backward(StableIValue* stack, std::uint64_t, std::uint64_t);
void average_pool(StableIValue* stack, std::uint64_t, std::uint64_t);
void average_pool_backward(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
