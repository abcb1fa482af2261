// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"

namespace isobit::rope_tables {

// A row of both tables.
using Kernel = void (*)(double position, const double* frequencies, std::byte* cosines,
                        std::byte* sines, std::int64_t count);

ISOBIT_IN_EACH_ISA(Kernel kernel(DType dtype);)

}  // namespace isobit::rope_tables
