// SPDX-License-Identifier: Apache-2.0
// How memory of a caller is named: where it starts, how much of it there is, and how it is walked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "isobit/core/dtype.h"

namespace isobit {

inline constexpr int kMaxRank = 8;

struct TensorView {
  void* data = nullptr;    // the first element
  std::int64_t bytes = 0;  // the storage that may be touched, counted from data
  DType dtype = DType::f32;
  int rank = 0;  // 0: the argument is absent
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};  // in elements

  bool given() const { return rank != 0; }
};

// A view of `rows` rows of `cols` adjacent elements whose starts lie `row_stride` elements apart.
inline TensorView matrix_view(void* data, std::int64_t bytes, DType dtype, std::int64_t rows,
                              std::int64_t cols, std::int64_t row_stride) {
  return {data, bytes, dtype, 2, {rows, cols}, {row_stride, 1}};
}

inline TensorView vector_view(void* data, std::int64_t bytes, DType dtype, std::int64_t count) {
  return {data, bytes, dtype, 1, {count}, {1}};
}

}  // namespace isobit
