// SPDX-License-Identifier: Apache-2.0
// Calls of a norm after their checks: what all norms' variants work on.
#pragma once

#include "isobit/core/check.h"

namespace isobit::norms {

// An element is kept with probability 1 - p and then scaled by 1 / (1 - p). Whether it is depends
// on the seed, its row and its column alone (philox.h).
struct Dropout {
  double p = 0;
  std::uint64_t seed = 0;
  std::int64_t first_row = 0;  // which row of the call the first one is, of a part of its rows

  ISOBIT_INLINE bool drops() const { return p > 0; }
};

// What is normalised is the sum of x, after dropout, and of residual, rounded to the type of x.
struct ForwardProblem {
  std::int64_t rows, cols;
  DType dtype, weight_dtype, y_dtype;  // dtype: of x, residual and sum
  Matrix x, residual, sum, y;          // residual and sum may be absent
  const void *weight, *bias;           // null where absent, like all pointers that follow
  void *mean, *rstd;                   // f32, or f64 beside f64
  bool zero_centered;                  // the weight is stored less 1
  double eps;
  Dropout dropout = {};

  // Whether rows must be computed before they are normalised.
  ISOBIT_INLINE bool composes() const { return residual || dropout.drops(); }
};

// x is what was normalised: the sum where there was one.
struct BackwardProblem {
  std::int64_t rows, cols;
  DType dtype, weight_dtype, grad_y_dtype;  // dtype: of x and of what has its shape
  Matrix x, grad_y, grad_sum;               // grad_sum: what else flows into the sum
  Matrix grad_x, grad_residual;             // before and after dropout
  const void* weight;
  void *grad_weight, *grad_bias;
  const void *mean, *rstd;
  bool zero_centered;
  double eps;
  Dropout dropout = {};
  const void* found = nullptr;  // on the CPU: RowTerms of all rows, of which statistics are taken

  ISOBIT_INLINE bool wants_rows() const { return grad_x || grad_residual; }
  ISOBIT_INLINE bool wants_sums() const { return grad_weight != nullptr || grad_bias != nullptr; }
};

// The matrix without its first rows.
inline Matrix from_row(const Matrix& matrix, std::int64_t row, DType dtype) {
  if (!matrix) return matrix;
  return {row_of(matrix, row, dtype), matrix.rows - row, matrix.cols, matrix.stride};
}

// What statistics are stored in, and everything is computed in.
inline DType real_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace isobit::norms
