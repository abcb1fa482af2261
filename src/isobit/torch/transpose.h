// SPDX-License-Identifier: Apache-2.0
// Transpose as PyTorch's dispatcher calls it.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

void transpose(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
