// SPDX-License-Identifier: Apache-2.0
// s = grad_y activation'(pre), rounded to the type of y, where it is no array.
#pragma once

#include <cstdint>

#include "isobit/ops/matmul/cuda_call.h"

namespace isobit::matmul {

// s, element by element: rows of all products one after the other.
template <class T>
struct Slopes {
  using Real = RealOf<T>;
  Call<T> call;  // a is the gradient, pre what the activation was applied to
  Activation bend;

  explicit Slopes(const Problem& rows) : call(as_call(rows)), bend(rows.bend) {}

  ISOBIT_EITHER std::int64_t rows() const { return call.products * call.m; }
  ISOBIT_DEVICE Real operator()(std::int64_t row, std::int64_t col) const {
    const std::int64_t product = row / call.m, i = row - product * call.m;
    const Real grad = read<Real>(call.a, call.start(call.a, product) + call.a.at(i, col));
    if (call.pre.data == nullptr) return grad;
    const Real pre = read<Real>(call.pre, call.start(call.pre, product) + call.pre.at(i, col));
    return rounded(slope<typename Call<T>::S>(bend, grad, pre));
  }

 private:
  static Call<T> as_call(Problem rows) {
    rows.first.pre = rows.first.slope;
    for (Loop& loop : rows.loops) loop.steps[6] = loop.steps[7];
    return Call<T>(rows);
  }
  ISOBIT_DEVICE Real rounded(Real value) const {
    using C = simt::Conversions;
    if constexpr (sizeof(Real) == 4) {
      if (call.a.dtype == DType::f16)
        return C::template widen<Real>(C::template narrow<f16>(value));
      if (call.a.dtype == DType::bf16)
        return C::template widen<Real>(C::template narrow<bf16>(value));
    }
    return value;
  }
};

}  // namespace isobit::matmul
