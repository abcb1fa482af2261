// SPDX-License-Identifier: Apache-2.0
// Reductions as PyTorch's dispatcher calls them.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

void total(StableIValue* stack, std::uint64_t, std::uint64_t);
void reduce(StableIValue* stack, std::uint64_t, std::uint64_t);
void reduce_backward(StableIValue* stack, std::uint64_t, std::uint64_t);

// dims: those that are reduced, counted from the end, so negative; in ascending order.
inline constexpr Operator kReductions[] = {
    {"total", "(Tensor x, int[] dims, bool mean=False, ScalarType? dtype=None) -> Tensor", total},
    {"reduce",
     "(Tensor x, int[] dims, int kind, float correction=0.0, ScalarType? dtype=None) -> Tensor",
     reduce},
    {"reduce_backward",
     "(Tensor grad_y, Tensor x, int[] dims, int kind, float correction=0.0) -> Tensor",
     reduce_backward},
};

}  // namespace isobit::torch
