// SPDX-License-Identifier: Apache-2.0
// The vectors of the instruction set that a file is being compiled for. CMake compiles each
// cpu_kernels*.cpp once for every instruction set and names it in ISOBIT_ISA.
#pragma once

#include <type_traits>

#include "isobit/simd/fence.h"

#ifndef ISOBIT_ISA
#define ISOBIT_ISA scalar
#endif

#define ISOBIT_ISA_scalar 0
#define ISOBIT_ISA_avx2 1
#define ISOBIT_ISA_avx512 2
#define ISOBIT_ISA_neon 3
#define ISOBIT_JOIN_(a, b) a##b
#define ISOBIT_JOIN(a, b) ISOBIT_JOIN_(a, b)

#if ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_avx512
#include "isobit/simd/vec_avx512.h"
#elif ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_avx2
#include "isobit/simd/vec_avx2.h"
#elif ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_neon
#include "isobit/simd/vec_neon.h"
#else
#include "isobit/simd/vec_scalar.h"
#endif

// Lambdas that take vectors must be inlined too.
#define ISOBIT_INLINE_LAMBDA __attribute__((always_inline))

namespace isobit::simd {

using ISOBIT_ISA::Bytes;
using ISOBIT_ISA::F32;
using ISOBIT_ISA::F64;
using ISOBIT_ISA::I32;
using ISOBIT_ISA::Lane;

// The vectors that elements of T are computed in.
template <class T>
using VectorsOf = std::conditional_t<sizeof(T) == 8, F64, F32>;

}  // namespace isobit::simd
