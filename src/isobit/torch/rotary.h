// SPDX-License-Identifier: Apache-2.0
// The kernels that operators.cpp lists and rotary.cpp defines.
#pragma once

#include "isobit/torch/stack.h"

namespace isobit::torch {

void rope(StableIValue* stack, std::uint64_t, std::uint64_t);
void rope_in_place(StableIValue* stack, std::uint64_t, std::uint64_t);
void rope_tables(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
