// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"
#include "isobit/ops/pointwise_loss/pointwise_loss.h"

namespace isobit::pointwise_loss {

// Adjacent elements of all arrays of a call; null where there is none.
struct Arrays {
  const std::byte *x, *target, *weight, *pos_weight;
  std::byte* loss;    // read in backward
  std::byte* grad_x;  // null in forward
};
using Kernel = void (*)(Kind kind, double beta, const Arrays& arrays, std::int64_t count);

ISOBIT_IN_EACH_ISA(Kernel kernel(DType dtype);)

}  // namespace isobit::pointwise_loss
