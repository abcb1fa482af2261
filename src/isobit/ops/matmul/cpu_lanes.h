// SPDX-License-Identifier: Apache-2.0
// Lanes of a matrix as vectors along the other dimension: what the kernels of matmul share.
#pragma once

#include <type_traits>

#include "isobit/simd/lanes.h"
#include "isobit/simd/row_loops.h"
#include "isobit/simd/vec.h"

namespace isobit::matmul::ISOBIT_ISA {

template <class T>
using VectorsOf = std::conditional_t<std::is_same_v<T, double>, simd::F64, simd::F32>;

using simd::across;
using simd::for_each_vector;

}  // namespace isobit::matmul::ISOBIT_ISA
