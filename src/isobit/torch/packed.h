// SPDX-License-Identifier: Apache-2.0
// Packed matrices as PyTorch's dispatcher passes them: by their addresses, which Python owns.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

void pack_matrix(StableIValue* stack, std::uint64_t, std::uint64_t);
void packed_matmul(StableIValue* stack, std::uint64_t, std::uint64_t);
void packed_bytes(StableIValue* stack, std::uint64_t, std::uint64_t);
void free_packed(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
