// SPDX-License-Identifier: Apache-2.0
// A row of LayerNorm summed by core/order.h to the letter: all of the scalar variant, and the rare
// long way of the others.
#pragma once

#include <limits>

#include "isobit/core/order.h"
#include "isobit/ops/layernorm/formula.h"
#include "isobit/simd/vec_scalar.h"

namespace isobit::layernorm {

// Calls visitor(Type<X>{}, Type<W>{}) for the pairs of types that LayerNorm takes.
template <class Visitor>
ISOBIT_INLINE auto visit_types(DType x, DType weight, Visitor&& visitor) {
  if (x == DType::f32) return visitor(Type<float>{}, Type<float>{});
  if (weight == DType::f32) return visitor(Type<bf16>{}, Type<float>{});
  return visitor(Type<bf16>{}, Type<bf16>{});
}

// S names the instruction set that this is compiled for: the linker must keep the copies apart.
template <class S, class T>
class SpecifiedRow {
 public:
  SpecifiedRow(const T* x, std::int64_t cols) : x_(x), cols_(cols) {}

  float sum() const {
    return order::sum<float>(cols_, [&](std::int64_t i) { return to_float(x_[i]); });
  }
  Moments deviations(float mean) const {
    return moments([&](std::int64_t i) { return to_float(x_[i]) - mean; });
  }

  float sum(const Statistics& statistics) const {
    const NormaliseAny<simd::scalar::F32> row(statistics);
    return order::sum<float>(cols_, [&](std::int64_t i) { return row.scaled(to_float(x_[i])); });
  }
  Moments deviations(const Statistics& statistics) const {
    const NormaliseAny<simd::scalar::F32> row(statistics);
    return moments([&](std::int64_t i) { return row.centred(to_float(x_[i])); });
  }

  Extremes extremes() const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    Extremes result{kInfinity, -kInfinity};
    for (std::int64_t i = 0; i < cols_; ++i) {
      const float x = to_float(x_[i]);
      if (x != x) return {x, x};
      result.lowest = x < result.lowest ? x : result.lowest;
      result.highest = x > result.highest ? x : result.highest;
    }
    return result;
  }

 private:
  template <class Deviation>
  Moments moments(const Deviation& d) const {
    return {order::sum<float>(cols_, d), order::dot<float>(cols_, d, d)};
  }

  const T* x_;
  std::int64_t cols_;
};

}  // namespace isobit::layernorm
