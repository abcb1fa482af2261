// SPDX-License-Identifier: Apache-2.0
// How backward is cut into blocks of rows.
#include "isobit/norm_linear/cpu_backward.h"

namespace isobit::norm_linear {

// The weight is packed anew for each block: its rows should be many, and their gradient of y stay
// within what a product takes beside its arrays.
Plan choose_block(const BackwardProblem& problem, const Machine&) {
  constexpr std::int64_t kMostBytes = 16 << 20;
  const std::int64_t row_bytes =
      std::max<std::int64_t>(1, problem.product.cols * size_of(problem.product.dtype));
  int rows = 1024;
  while (rows > 16 && rows * row_bytes > kMostBytes) rows /= 2;
  return {rows};
}

BackwardProblem block_of(const BackwardProblem& problem, std::int64_t first, std::int64_t count) {
  BackwardProblem block = problem;
  const auto cut = [&](Matrix& matrix, DType dtype) {
    if (!matrix) return;
    matrix = norms::from_row(matrix, first, dtype);
    matrix.rows = count;
  };
  norms::BackwardProblem& norm = block.norm;
  cut(norm.x, norm.dtype);
  cut(norm.grad_sum, norm.dtype);
  cut(norm.grad_x, norm.dtype);
  cut(norm.grad_residual, norm.dtype);
  norm.rows = block.product.rows = count;
  norm.dropout.first_row += first;
  block.grad_z = rows_of(problem.grad_z, first, count);
  block.pre = rows_of(problem.pre, first, count);
  return block;
}

}  // namespace isobit::norm_linear
