// SPDX-License-Identifier: Apache-2.0
// The adapters of attention.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

void attention(StableIValue* stack, std::uint64_t, std::uint64_t);
void attention_backward(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
