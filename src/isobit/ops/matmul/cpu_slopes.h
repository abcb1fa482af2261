// SPDX-License-Identifier: Apache-2.0
// s of backward, the gradient times the slope of an activation, made while it is used.
#pragma once

#include "isobit/ops/matmul/cpu_regions.h"

namespace isobit::matmul {

// One element of s, rounded to the gradient's type.
template <class Real>
Real slope_element(const Problem& problem, const Array& grad, const Array& pre, std::int64_t row,
                   std::int64_t col) {
  using S = simd::ScalarOf<Real>;
  Real s = read<Real>(grad, row, col);
  if (!pre) return s;
  s = slope<S>(problem.bend, s, read<Real>(pre, row, col));
  with_types(grad.dtype, [&]<class T>(T, auto) {
    if constexpr (std::is_same_v<T, double> == std::is_same_v<Real, double>)
      s = widen<Real>(narrow<T>(s));
  });
  return s;
}

// Rows of s out of those of the gradient and of pre, which may lie anyhow.
class Slopes {
 public:
  Slopes(const Problem& problem, Isa isa)
      : grad_(problem.derived == Derived::b ? problem.first.b.dtype : problem.first.a.dtype),
        element_(problem.element),
        real_(problem.real()),
        slope_(slope_kernel_for(problem.bend, grad_, problem.first.slope, isa)),
        narrow_(narrow_kernel_for(element_, isa)) {}

  // Row 0 of both from column 0 on, as sums.
  void row(const Array& grad, const Array& pre, std::int64_t count, void* to) const {
    const bool adjacent = grad.col == 1 && (!pre || pre.col == 1);
    if (adjacent) return slope_(grad.data, pre.data, to, count);
    alignas(64) std::byte of_grad[kPiece * 8], of_pre[kPiece * 8];
    for (std::int64_t i = 0; i < count; i += kPiece) {
      const std::int64_t some = std::min(kPiece, count - i);
      gather(grad.moved(0, i), some, of_grad);
      if (pre) gather(pre.moved(0, i), some, of_pre);
      slope_(of_grad, of_pre, static_cast<std::byte*>(to) + i * size_of(real_), some);
    }
  }

  // Bytes of a part as an operand.
  static std::int64_t room(const Problem& problem, std::int64_t rows, std::int64_t cols) {
    if (problem.derived == Derived::none) return 0;
    const bool turns = turned(problem.derived == Derived::a ? problem.first.a : problem.first.b);
    const std::int64_t elements = turns ? cols * (rows + kGap) : rows * (cols + kGap);
    return parts_of(elements * size_of(problem.element), 64) * 64;
  }
  // A part of s as an operand, whose elements are then `element`s: lines along whichever way is
  // adjacent in the gradient.
  Array part(const Array& grad, const Array& pre, std::int64_t rows, std::int64_t cols,
             std::byte* to) const {
    if (turned(grad)) return part(grad.transposed(), pre.transposed(), cols, rows, to).transposed();
    const std::int64_t pitch = cols + kGap;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; j += kPiece) {
        const std::int64_t some = std::min(kPiece, cols - j);
        std::byte* const at = to + (i * pitch + j) * size_of(element_);
        alignas(64) std::byte wide[kPiece * 8];
        row(grad.moved(i, j), pre.moved(i, j), some, element_ == real_ ? at : wide);
        if (element_ != real_) narrow_(wide, at, some);
      }
    return {to, element_, pitch, 1};
  }

 private:
  static constexpr std::int64_t kPiece = 512;
  // Lines a power of two apart would push each other out of caches.
  static constexpr std::int64_t kGap = 32;

  static bool turned(const Array& grad) { return grad.col != 1 && grad.row == 1; }

  static SlopeKernel slope_kernel_for(Activation activation, DType grad, const Array& pre,
                                      Isa isa) {
    if (!pre) activation = Activation::none;
    ISOBIT_RETURN_FOR_ISA(isa, slope_kernel(activation, grad));
  }
  static NarrowKernel narrow_kernel_for(DType to, Isa isa) {
    ISOBIT_RETURN_FOR_ISA(isa, narrow_kernel(to));
  }

  void gather(const Array& from, std::int64_t count, std::byte* to) const {
    with_types(grad_, [&]<class T, class Real>(T, Real) {
      for (std::int64_t i = 0; i < count; ++i)
        reinterpret_cast<T*>(to)[i] = reinterpret_cast<const T*>(from.data)[i * from.col];
    });
  }

  DType grad_, element_, real_;
  SlopeKernel slope_;
  NarrowKernel narrow_;
};

}  // namespace isobit::matmul
