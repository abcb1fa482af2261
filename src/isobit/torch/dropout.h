// SPDX-License-Identifier: Apache-2.0
// What a call is told of a dropout, and the kernel that operators.cpp lists and dropout.cpp
// defines.
#pragma once

#include <cstdint>
#include <cstring>

#include "isobit/torch/call.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {

// What forward and backward are told alike. A seed is an integer in the processor's memory, so that
// it can be a value of a graph.
struct Dropout {
  double probability;
  std::uint64_t seed = 0;

  Dropout(const char* op, Stack& given) : Dropout{op, given.number(), given.optional_tensor()} {}
  Dropout(const char* op, double p, const Tensor& tensor) : probability(p) {
    require(probability == 0 || tensor, op, ": dropout of ", probability, " needs a seed");
    if (!tensor) return;
    require(tensor.dtype() == aoti_torch_dtype_int64() && tensor.shape().empty() &&
                tensor.device().type == aoti_torch_device_type_cpu(),
            op, ": seed must be one int64 in CPU memory");
    std::memcpy(&seed, tensor.input(), sizeof seed);
  }
};

void dropout(StableIValue* stack, std::uint64_t, std::uint64_t);

}  // namespace isobit::torch
