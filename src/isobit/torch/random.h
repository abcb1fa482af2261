// SPDX-License-Identifier: Apache-2.0
// The kernel that operators.cpp lists and random.cpp defines.
#pragma once

#include "isobit/torch/stack.h"

namespace isobit::torch {

void random_in_place(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
