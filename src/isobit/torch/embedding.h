// SPDX-License-Identifier: Apache-2.0
// Embedding as PyTorch's dispatcher calls it.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

void embedding(StableIValue* stack, std::uint64_t, std::uint64_t);
void embedding_backward(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
