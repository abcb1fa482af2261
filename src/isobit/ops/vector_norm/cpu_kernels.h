// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"
#include "isobit/ops/vector_norm/vector_norm.h"

namespace isobit::vector_norm {

// What is wanted of adjacent elements: the sum of their squares, first times 2^exponent each, of
// their magnitudes, or the largest of these. All are numbers of the type that is computed in.
using Kernel = double (*)(const void* x, std::int64_t count, Order order, int exponent);

// `fetches`: what lies behind the elements will be wanted next, and comes from memory. Processors
// do not foresee the order in which a block is read.
ISOBIT_IN_EACH_ISA(Kernel kernel(DType dtype, bool fetches);)

}  // namespace isobit::vector_norm
