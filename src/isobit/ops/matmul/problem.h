// SPDX-License-Identifier: Apache-2.0
// Calls of matmul after their check: matrices, and loops around them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
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
  Array slope;  // where the activation's slope is taken, of a derived operand

  static constexpr Array Arrays::* kAll[] = {&Arrays::a,   &Arrays::b,        &Arrays::bias,
                                             &Arrays::c,   &Arrays::residual, &Arrays::y,
                                             &Arrays::pre, &Arrays::slope};
};

// A loop around the products: how many elements each array moves on in a turn, as in kAll.
struct Loop {
  std::int64_t extent = 1;
  std::array<std::int64_t, std::size(Arrays::kAll)> steps{};
};

// An operand that is not as it lies in memory: s of backward, the array's elements times the slope
// of an activation, in the array's type and then in `element`.
enum class Derived { none, a, b };

// An operand that is in no array: its parts are made where they are packed. On the processor alone,
// and by the packed variant.
struct Made {
  // Writes a part in the type of a and b, row after row `pitch` elements apart.
  void (*part)(const void* self, std::int64_t row, std::int64_t col, std::int64_t rows,
               std::int64_t cols, void* to, std::int64_t pitch) = nullptr;
  const void* self = nullptr;

  explicit operator bool() const { return part != nullptr; }
};

struct Problem {
  DType element = DType::f32;                // of a and b
  Activation activation = Activation::none;  // of y
  Arithmetic arithmetic = Arithmetic::canonical;
  Derived derived = Derived::none;
  Activation bend = Activation::none;  // whose slope a derived operand takes
  double alpha = 1, beta = 0;
  std::int64_t m = 0, n = 0, k = 0;
  Arrays first;
  Made made_a, made_b;                 // in place of first.a and first.b
  const Panels* panels = nullptr;      // b, where it was packed before; first.b is then no matrix
  std::array<Loop, kMaxRank> loops{};  // the outermost first
  int loop_count = 0;

  DType dtype() const { return element; }
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
    if (derived != Derived::none) result.derived = derived == Derived::a ? Derived::b : Derived::a;
    for (Loop& loop : result.loops) std::swap(loop.steps[0], loop.steps[1]);
    return result;
  }
};

// Gradients: two products, and what becomes of rows of s.
struct BackwardProblem {
  Problem to_a, to_b;  // derived operands only where s is not grad_y itself
  Problem rows;        // s is the derived a; grad_bias = bias, grad_c = y = alpha s
  bool wants_a = false, wants_b = false;

  bool wants_rows() const { return rows.first.bias || rows.first.y; }
};

// Throws where a call breaks a rule; says why a machine cannot compute it, or "".
Problem check_forward(const ForwardArgs& args);
std::string refuses_forward(const Problem& problem, const Machine& machine);

// Of calls that passed their check. panels: those of b. slope: where that of a derived operand is
// taken.
Problem problem_of(const ForwardArgs& args, const Panels& panels);
Problem problem_of(const ForwardArgs& args, DType element, const TensorView& slope = {},
                   Derived derived = Derived::none, Activation bend = Activation::none);
Problem rows_problem(const BackwardArgs& args, const TensorView& slope);

using ForwardVariant = Variant<ForwardArgs, Problem>;
using BackwardVariant = Variant<BackwardArgs, BackwardProblem>;

std::span<const ForwardVariant> cpu_forward_variants();
std::span<const BackwardVariant> cpu_backward_variants();
ForwardVariant packed_variant();  // one of the former, which takes panels of b too
// In device libraries.
std::span<const ForwardVariant> cuda_forward_variants();
std::span<const BackwardVariant> cuda_backward_variants();
ForwardVariant cuda_tensor_variant();  // one of the former
ForwardVariant cuda_wgmma_variant();   // and two others
ForwardVariant cuda_cublaslt_variant();

}  // namespace isobit::matmul
