// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"

namespace isobit::dropout {

// Columns of a row from a multiple of four on.
struct Columns {
  std::int64_t row, first, count;
  const std::byte* x;
  std::byte* y;
};
using Kernel = void (*)(double p, std::uint64_t seed, const Columns& columns);

ISOBIT_IN_EACH_ISA(Kernel kernel(DType dtype);)

}  // namespace isobit::dropout
