// SPDX-License-Identifier: Apache-2.0
// Matrices as views, some rows of one, and one with its rows as columns.
#pragma once

#include <utility>

#include "isobit/core/check.h"
#include "isobit/core/tensor_view.h"

namespace isobit {

// Rows of adjacent elements as a view. Where there are none, their address may be null.
inline TensorView view_of(const Matrix& matrix, DType dtype) {
  return matrix_view(matrix.data, 0, dtype, matrix.rows, matrix.cols, matrix.stride);
}

// Some rows of a view of rank 2, if it is given.
inline TensorView rows_of(TensorView view, std::int64_t first, std::int64_t count) {
  if (!view.given()) return view;
  view.data = static_cast<std::byte*>(view.data) + first * view.strides[0] * size_of(view.dtype);
  view.shape[0] = count;
  return view;
}

// The last two dimensions exchanged.
inline TensorView turned(TensorView view) {
  std::swap(view.shape[view.rank - 2], view.shape[view.rank - 1]);
  std::swap(view.strides[view.rank - 2], view.strides[view.rank - 1]);
  return view;
}

}  // namespace isobit
