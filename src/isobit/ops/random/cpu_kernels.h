// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"
#include "isobit/ops/random/formula.h"

namespace isobit::random {

// Adjacent elements, of which the first has this index.
using Kernel = void (*)(const Constants& constants, std::uint64_t first, std::byte* to,
                        std::int64_t count);

ISOBIT_IN_EACH_ISA(Kernel kernel(DType dtype);)

}  // namespace isobit::random
