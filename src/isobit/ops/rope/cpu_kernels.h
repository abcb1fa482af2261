// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"
#include "isobit/ops/rope/rope.h"

namespace isobit::rope {

// Queries or keys of one token, of adjacent elements each.
struct Token {
  const std::byte* x;
  std::byte* y;
  std::int64_t heads, x_step, y_step;  // elements from head to head
};
// Its row of the tables.
struct Row {
  const std::byte *cos, *sin;
};
// How many pairs turn, of how many elements, and which way.
struct Turn {
  std::int64_t pairs, head_dim;
  bool backward;
};
using Kernel = void (*)(const Token& token, const Row& row, const Turn& turn, bool streaming);
// Computes a row of both tables.
using TableKernel = void (*)(double position, const double* frequencies, std::byte* cosines,
                             std::byte* sines, std::int64_t count);

ISOBIT_IN_EACH_ISA(Kernel kernel(DType dtype, Style style); TableKernel table_kernel(DType real);)

}  // namespace isobit::rope
