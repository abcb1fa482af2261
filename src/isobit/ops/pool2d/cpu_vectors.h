// SPDX-License-Identifier: Apache-2.0
// What the vector loops of both passes are made of: sums and largest elements in every lane.
#pragma once

#include <cstdint>
#include <limits>

#include "isobit/ops/pool2d/cpu_kernels.h"
#include "isobit/ops/pool2d/formula.h"
#include "isobit/simd/lines.h"
#include "isobit/simd/vec.h"

namespace isobit::pool2d::ISOBIT_ISA {

using simd::VectorsOf;

template <class S>
constexpr typename S::Real kInfinity = std::numeric_limits<typename S::Real>::infinity();

// Sum in every lane. kPanels: where there may be more than one.
template <class S, bool kPanels>
struct Sums {
  typename S::V total = S::zero(), part = S::zero();
  std::int64_t panel = 0;

  ISOBIT_INLINE void add(std::int64_t number, typename S::V value) {
    if constexpr (kPanels)
      if (number / kPanel != panel) {
        total = S::add(total, part);
        part = S::zero();
        panel = number / kPanel;
      }
    part = S::add(part, value);
  }
  ISOBIT_INLINE typename S::V value() const { return S::add(total, part); }
};

// The largest in every lane, and with kIndex the number of its tap. kNan: where there may be one.
template <class S, bool kNan, bool kIndex>
struct Largest {
  using V = typename S::V;
  V value = S::all(-kInfinity<S>), tap;

  ISOBIT_INLINE void add(std::int64_t number, V next) {
    if constexpr (!kNan && !kIndex) {
      value = S::max(next, value);
      return;
    }
    take(S::less(value, next), number, next);
    // Only of NaN both give the second.
    if constexpr (kNan)
      take(S::less(S::max(next, S::all(-kInfinity<S>)), S::min(next, S::all(kInfinity<S>))), number,
           next);
  }

 private:
  ISOBIT_INLINE void take(typename S::Mask mask, std::int64_t number, V next) {
    value = S::choose(mask, next, value);
    if constexpr (kIndex) tap = S::choose(mask, S::all(static_cast<typename S::Real>(number)), tap);
  }
};

using simd::load_line;
using simd::store_lanes;
using simd::store_line;

// The kernel of a type, of a reduction: from a template of both.
#define ISOBIT_POOL2D_KERNEL(dtype, reduction, function)                                       \
  switch (dtype) {                                                                             \
    case DType::f16:                                                                           \
      return (reduction) == Reduction::max ? function<f16, true> : function<f16, false>;       \
    case DType::bf16:                                                                          \
      return (reduction) == Reduction::max ? function<bf16, true> : function<bf16, false>;     \
    case DType::f64:                                                                           \
      return (reduction) == Reduction::max ? function<double, true> : function<double, false>; \
    default:                                                                                   \
        return (reduction) == Reduction::max ? function<float, true> : function<float, false>; \
  }

}  // namespace isobit::pool2d::ISOBIT_ISA
