// SPDX-License-Identifier: Apache-2.0
// What the kernels of matmul share: lanes of a matrix as vectors along the other dimension.
#pragma once

#include "isobit/simd/lanes.h"
#include "isobit/simd/row_loops.h"
#include "isobit/simd/vec.h"

namespace isobit::matmul::ISOBIT_ISA {

using simd::across;
using simd::for_each_vector;
using simd::VectorsOf;

// Tiles of so few rows wait for b, which may come from memory, as that of a packed matrix does.
inline constexpr int kFewRows = 8;

}  // namespace isobit::matmul::ISOBIT_ISA
