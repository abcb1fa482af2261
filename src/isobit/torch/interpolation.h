// SPDX-License-Identifier: Apache-2.0
// Interpolation and its gradient as PyTorch's dispatcher calls them, of images.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

void interpolate(StableIValue* stack, std::uint64_t, std::uint64_t);
void interpolate_backward(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
