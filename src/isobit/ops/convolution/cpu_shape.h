// SPDX-License-Identifier: Apache-2.0
// Vectors and tiles of sums, for each instruction set: those of matmul.
#pragma once

#include "isobit/ops/matmul/cpu_lanes.h"
#include "isobit/ops/matmul/cpu_shape.h"

namespace isobit::convolution::ISOBIT_ISA {

using simd::VectorsOf;
using Shape = matmul::ISOBIT_ISA::LargestTile;

template <class S>
ISOBIT_INLINE void put(typename S::Real* to, typename S::V value, auto... part) {
  S::template store<simd::Stores::cached, simd::Nan::absent>(to, value, part...);
}

}  // namespace isobit::convolution::ISOBIT_ISA
