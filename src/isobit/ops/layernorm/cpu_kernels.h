// SPDX-License-Identifier: Apache-2.0
// What the cpu_kernels files offer once for each instruction set.
#pragma once

#include <cstdint>

#include "isobit/core/machine.h"
#include "isobit/ops/layernorm/formula.h"
#include "isobit/ops/layernorm/problem.h"

namespace isobit::layernorm {

// Rows [begin, end) of the forward pass.
using ForwardKernel = void (*)(const ForwardProblem& problem, std::int64_t begin, std::int64_t end);

// What the backward pass knows of a row before it writes: its statistics and the row means of g and
// of g * x̂.
struct RowTerms {
  Statistics statistics;
  float mean_g, mean_gx;
};

// A rectangle of the backward pass.
struct Tile {
  std::int64_t first_row, last_row, first_col, last_col;
};

struct BackwardKernels {
  // The terms of rows [begin, end); the two means only where grad_x is wanted.
  void (*terms)(const BackwardProblem& problem, std::int64_t begin, std::int64_t end,
                RowTerms* terms);
  // Writes grad_x of a tile; terms[0] belongs to its first row.
  void (*grad_x)(const BackwardProblem& problem, const Tile& tile, const RowTerms* terms);
  // Adds the tile's rows, one after the other, to grad_weight's and grad_bias's sums of its
  // columns; `fresh` sums start from +0.
  void (*sums)(const BackwardProblem& problem, const Tile& tile, const RowTerms* terms,
               float* weight_sums, float* bias_sums, bool fresh);
  // Both in one sweep.
  void (*both)(const BackwardProblem& problem, const Tile& tile, const RowTerms* terms,
               float* weight_sums, float* bias_sums, bool fresh);
  // into[i] = into[i] + from[i]
  void (*add)(float* into, const float* from, std::int64_t count);
  // to[i] = 0 + sums[i], rounded to the type of the weights
  void (*finish)(DType weight_dtype, void* to, const float* sums, std::int64_t count);
};

// `streaming` kernels are for data that leaves the caches: their stores bypass them, and the next
// rows are fetched while the present ones are worked on.
namespace scalar {
ForwardKernel forward_kernel(DType x, DType weight, bool streaming);
BackwardKernels backward_kernels(DType x, DType weight, bool streaming);
}  // namespace scalar
namespace avx2 {
ForwardKernel forward_kernel(DType x, DType weight, bool streaming);
BackwardKernels backward_kernels(DType x, DType weight, bool streaming);
}  // namespace avx2
namespace avx512 {
ForwardKernel forward_kernel(DType x, DType weight, bool streaming);
BackwardKernels backward_kernels(DType x, DType weight, bool streaming);
}  // namespace avx512

}  // namespace isobit::layernorm
