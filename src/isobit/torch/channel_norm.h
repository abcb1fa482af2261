// SPDX-License-Identifier: Apache-2.0
// Group norms and batch norms as PyTorch's dispatcher calls them.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

void group_norm(StableIValue* stack, std::uint64_t, std::uint64_t);
void group_norm_backward(StableIValue* stack, std::uint64_t, std::uint64_t);
void batch_norm(StableIValue* stack, std::uint64_t, std::uint64_t);
void batch_norm_backward(StableIValue* stack, std::uint64_t, std::uint64_t);

inline constexpr Operator kChannelNorms[] = {
    {"group_norm",
     "(Tensor x, Tensor? weight=None, Tensor? bias=None, int groups=1, float eps=1e-05)"
     " -> (Tensor, Tensor)",
     group_norm},
    {"group_norm_backward",
     "(Tensor grad_y, Tensor x, Tensor? weight=None, Tensor? moments=None, int groups=1, "
     "float eps=1e-05, bool needs_x=True, bool needs_weight=True, bool needs_bias=True)"
     " -> (Tensor, Tensor, Tensor)",
     group_norm_backward},
    {"batch_norm",
     "(Tensor x, Tensor? weight=None, Tensor? bias=None, Tensor? running_mean=None, "
     "Tensor? running_var=None, bool training=False, float momentum=0.1, float eps=1e-05)"
     " -> (Tensor, Tensor, Tensor, Tensor)",
     batch_norm},
    {"batch_norm_backward",
     "(Tensor grad_y, Tensor x, Tensor? weight=None, Tensor? running_mean=None, "
     "Tensor? running_var=None, Tensor? moments=None, bool training=False, float eps=1e-05, "
     "bool needs_x=True, bool needs_weight=True, bool needs_bias=True) -> (Tensor, Tensor, Tensor)",
     batch_norm_backward},
};

}  // namespace isobit::torch
