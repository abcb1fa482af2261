// SPDX-License-Identifier: Apache-2.0
// A call of matmul after its check: matrices, and loops around them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "isobit/dispatch/variant.h"
#include "isobit/ops/matmul/matmul.h"

namespace isobit::matmul {

// One array of a call, of which an element is wanted. No data where it is not given.
struct Array {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t row = 0, col = 0;  // elements from one to the next

  explicit operator bool() const { return data != nullptr; }
  Array moved(std::int64_t rows, std::int64_t cols) const {
    Array result = *this;
    if (data != nullptr) result.data += (rows * row + cols * col) * size_of(dtype);
    return result;
  }
  Array transposed() const {
    Array result = *this;
    std::swap(result.row, result.col);
    return result;
  }
};

// All arrays of one product.
struct Arrays {
  Array a, b, bias, c, residual, y, pre;

  static constexpr Array Arrays::* kAll[] = {&Arrays::a,  &Arrays::b,        &Arrays::bias,
                                             &Arrays::c,  &Arrays::residual, &Arrays::y,
                                             &Arrays::pre};
};

// A loop around the products: how many elements each array moves on in a turn, as in kAll.
struct Loop {
  std::int64_t extent = 1;
  std::array<std::int64_t, std::size(Arrays::kAll)> steps{};
};

struct Problem {
  Activation activation = Activation::none;
  double alpha = 1, beta = 0;
  std::int64_t m = 0, n = 0, k = 0;
  Arrays first;
  std::array<Loop, kMaxRank> loops{};  // the outermost first
  int loop_count = 0;

  DType dtype() const { return first.a.dtype; }
  DType real() const { return dtype() == DType::f64 ? DType::f64 : DType::f32; }
  std::int64_t products() const {
    std::int64_t count = 1;
    for (int i = 0; i < loop_count; ++i) count *= loops[i].extent;
    return count;
  }
  bool empty() const { return m == 0 || n == 0 || products() == 0; }

  Arrays arrays(std::int64_t product) const {
    Arrays result = first;
    for (int i = loop_count - 1; i >= 0; --i) {
      const std::int64_t turn = product % loops[i].extent;
      product /= loops[i].extent;
      for (std::size_t j = 0; j < std::size(Arrays::kAll); ++j) {
        Array& array = result.*Arrays::kAll[j];
        if (array) array.data += turn * loops[i].steps[j] * size_of(array.dtype);
      }
    }
    return result;
  }
  // The same products, each transposed: y' = b' a'.
  Problem transposed() const {
    Problem result = *this;
    for (Array Arrays::* array : Arrays::kAll)
      result.first.*array = (result.first.*array).transposed();
    std::swap(result.first.a, result.first.b);
    std::swap(result.m, result.n);
    for (Loop& loop : result.loops) std::swap(loop.steps[0], loop.steps[1]);
    return result;
  }
};

using MatmulVariant = Variant<Args, Problem>;

std::span<const MatmulVariant> cpu_variants();
std::span<const MatmulVariant> cuda_variants();  // in device libraries

}  // namespace isobit::matmul
