// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"
#include "isobit/ops/elementwise/elementwise.h"

namespace isobit::elementwise {

// y = x + residual (add) or x + 1 (increment) over `count` adjacent elements; residual is x where
// it is not used.
using Kernel = void (*)(const void* x, const void* residual, void* y, std::int64_t count,
                        bool streaming);

ISOBIT_IN_EACH_ISA(Kernel kernel(Kind kind, DType dtype);)

}  // namespace isobit::elementwise
