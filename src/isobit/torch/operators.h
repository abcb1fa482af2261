// SPDX-License-Identifier: Apache-2.0
// The operators as PyTorch's dispatcher calls them, the same for every device.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

// Of each operator PyTorch gets two: `name`, to which Python adds autograd, and `_name` without,
// for callers that see to gradients themselves.
void define_operators(Registration& definitions);
void implement_operators(Registration& implementations);

}  // namespace isobit::torch
