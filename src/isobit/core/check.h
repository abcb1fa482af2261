// SPDX-License-Identifier: Apache-2.0
// The rules every argument must keep, checked on each call in every build. Nothing below these
// checks tests again.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "isobit/core/tensor_view.h"

namespace isobit {

// What is left of a checked view: rows of adjacent elements.
struct Matrix {
  std::byte* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;  // elements from one row to the next

  ISOBIT_INLINE explicit operator bool() const { return data != nullptr; }
};

// One row of a matrix.
template <class T>
ISOBIT_INLINE T* row_of(const Matrix& matrix, std::int64_t row) {
  return reinterpret_cast<T*>(matrix.data) + row * matrix.stride;
}

// The same, where the type is known at run time.
inline std::byte* row_of(const Matrix& matrix, std::int64_t row, DType dtype) {
  return matrix.data + row * matrix.stride * size_of(dtype);
}

enum class Access { read, write };

// "of shape (3, 8) and strides (8, 1)", for messages.
std::string shape_and_strides(const TensorView& view);

// Checks the arguments of one operator; every message starts with its name.
class Checker {
 public:
  explicit Checker(std::string_view op) : op_(op) {}

  void dtype(std::string_view name, const TensorView& view, std::span<const DType> allowed) const;
  void dtype(std::string_view name, const TensorView& view,
             std::initializer_list<DType> allowed) const {
    dtype(name, view, std::span(allowed.begin(), allowed.size()));
  }
  void same_dtype(std::string_view name, const TensorView& view, std::string_view other_name,
                  DType other) const;

  // A view whose last dimension is adjacent and whose leading ones are evenly spaced, as rows. Rows
  // that are written may not overlap.
  Matrix matrix(std::string_view name, const TensorView& view, Access access) const;
  // The same, with the shape of another argument.
  Matrix matrix_like(std::string_view name, const TensorView& view, Access access,
                     std::string_view other_name, const TensorView& other) const;
  // The view with its last `dims` dimensions as one, whose elements must then be adjacent.
  TensorView merged(std::string_view name, const TensorView& view, std::int64_t dims) const;
  void same_shape(std::string_view name, const TensorView& view, std::string_view other_name,
                  const TensorView& other) const;
  // A view of any strides that are not negative. Elements that are written may not overlap, which
  // is seen as such where each stride spans the dimensions of smaller strides.
  void any_strides(std::string_view name, const TensorView& view, Access access) const;
  // From its first element to its last, for no_overlap() of a checked view.
  static Matrix span(const TensorView& view);
  // The same with the outer dimensions, in the order of their strides, as evenly spaced rows: then
  // heads of several arrays that lie side by side in each row of one buffer do not overlap.
  static Matrix rows_around(const TensorView& view);
  // `count` adjacent elements, one for each of the rows or columns of another argument.
  Matrix vector(std::string_view name, const TensorView& view, std::int64_t count,
                std::string_view unit, std::string_view other_name = "x") const;

  struct Named {
    std::string_view name;
    const TensorView& view;
    Matrix matrix;
    std::initializer_list<std::string_view> may_be = {};  // inputs
  };
  // No output may share memory with an input or another output. Only where it `may_be` an input may
  // it be exactly that input: same start, dtype and strides.
  void no_overlap(std::initializer_list<Named> outputs, std::initializer_list<Named> inputs) const;

  // A finite number that `real` (f32 or f64) can hold; kernels round it, in their own float mode.
  double finite(std::string_view name, double value, DType real) const;

 private:
  void inside_storage(std::string_view name, const TensorView& view) const;
  // Bounds the product of the extents. Rows and columns are used each by itself, so it is bounded
  // also where there are no elements: one extent is 0, and the product of the others counts.
  void few(std::string_view name, const TensorView& view) const;

  std::string_view op_;
};

}  // namespace isobit
