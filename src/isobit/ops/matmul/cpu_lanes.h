// SPDX-License-Identifier: Apache-2.0
// Lanes of a matrix as vectors along the other dimension: what the kernels of matmul share.
#pragma once

#include "isobit/simd/lanes.h"
#include "isobit/simd/row_loops.h"
#include "isobit/simd/vec.h"

namespace isobit::matmul::ISOBIT_ISA {

using simd::across;
using simd::for_each_vector;
using simd::VectorsOf;

}  // namespace isobit::matmul::ISOBIT_ISA
