// SPDX-License-Identifier: Apache-2.0
// What the vector loops of both passes share.
#pragma once

#include <cstdint>

#include "isobit/ops/interpolate/cpu_kernels.h"
#include "isobit/ops/interpolate/formula.h"
#include "isobit/simd/lines.h"
#include "isobit/simd/vec.h"

namespace isobit::interpolate::ISOBIT_ISA {

using simd::load_line;
using simd::store_lanes;
using simd::store_line;
using simd::VectorsOf;

template <class Real>
ISOBIT_INLINE const Taps<Real>* taps_in(const void* table) {
  return static_cast<const Taps<Real>*>(table);
}

// The kernel of a type, from a template.
#define ISOBIT_INTERPOLATE_KERNEL(dtype, function) \
  switch (dtype) {                                 \
    case DType::f16:  return function<f16>;        \
    case DType::bf16: return function<bf16>;       \
    case DType::f64:  return function<double>;     \
    default:          return function<float>;               \
  }

}  // namespace isobit::interpolate::ISOBIT_ISA
