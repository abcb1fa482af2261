// SPDX-License-Identifier: Apache-2.0
// A call of transpose after its check: loops over elements, whose order is the variants' choice.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "isobit/dispatch/variant.h"
#include "isobit/ops/transpose/transpose.h"

namespace isobit::transpose {

// One loop: how many turns it has, and how many elements each array moves on in a turn.
struct Axis {
  std::int64_t extent = 1, x_stride = 0, y_stride = 0;
};

// y[sum of i * y_stride] = x[sum of i * x_stride] over all axes. Whatever the caller's dimensions
// were, the two inner axes are chosen so that memory is walked along them; axes that both arrays
// allow to be one are one.
struct Problem {
  DType x_dtype, y_dtype;
  const std::byte* x = nullptr;
  std::byte* y = nullptr;
  Axis rows, cols;  // of a matrix in x; x's elements are nearest along cols, y's along rows
  std::array<Axis, kMaxRank> outer{};  // the outermost first
  int outer_count = 0;

  // Rows of x are adjacent elements, and so are columns of x in y: tiles can be transposed.
  bool tiles() const { return cols.x_stride == 1 && rows.y_stride == 1; }
  // Both arrays are adjacent along cols: rows can be copied.
  bool copies() const { return cols.x_stride == 1 && cols.y_stride == 1; }
  bool casts() const { return x_dtype != y_dtype; }
  // How many matrices there are, and elements in all.
  std::int64_t matrices() const {
    std::int64_t count = 1;
    for (int i = 0; i < outer_count; ++i) count *= outer[i].extent;
    return count;
  }
  std::int64_t elements() const { return matrices() * rows.extent * cols.extent; }
};

using TransposeVariant = Variant<Args, Problem>;

std::span<const TransposeVariant> cpu_variants();
std::span<const TransposeVariant> cuda_variants();  // in device libraries

}  // namespace isobit::transpose
