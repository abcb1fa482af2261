// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"

namespace isobit::transpose {

// A part of a matrix in x whose rows are adjacent elements, as its columns are in y.
struct Block {
  const std::byte* x;
  std::byte* y;
  std::int64_t rows, cols;
  std::int64_t x_stride, y_stride;  // elements from row to row of x, and of y
  const std::byte* next_x;          // where the thread's next part starts in x; may be null
};

// Matrices of so many rows or columns at most are narrow: shuffles that are known when they are
// compiled take their lines apart, or put them together, where they lie without gaps.
inline constexpr std::int64_t kMostNarrow = 4;

// y[j * y_stride + i] = x[i * x_stride + j].
using BlockKernel = void (*)(const Block& block, bool streaming);
// y[i] = x[i] over `count` adjacent elements.
using RowKernel = void (*)(const void* x, void* y, std::int64_t count, bool streaming);

ISOBIT_IN_EACH_ISA(BlockKernel block_kernel(DType x, DType y);
                   RowKernel row_kernel(DType x, DType y);)

}  // namespace isobit::transpose
