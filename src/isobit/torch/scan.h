// SPDX-License-Identifier: Apache-2.0
// The scans as PyTorch's dispatcher calls them.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

void scan(StableIValue* stack, std::uint64_t, std::uint64_t);
void scan_extreme(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
