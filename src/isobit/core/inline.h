// SPDX-License-Identifier: Apache-2.0
// Marks what may be compiled for several instruction sets: such a function must never exist out of
// line, or the linker could keep the AVX-512 copy for every caller. nvcc and HIP compile it for
// the GPU too.
#pragma once

#define ISOBIT_INLINE_HOST [[gnu::always_inline]] inline
#if defined(__CUDACC__) || defined(__HIP__)
#define ISOBIT_INLINE ISOBIT_INLINE_HOST __host__ __device__
#define ISOBIT_NOINLINE __host__ __device__ __noinline__
#else
#define ISOBIT_INLINE ISOBIT_INLINE_HOST
#define ISOBIT_NOINLINE [[gnu::noinline]]
#endif

// Before a loop whose arrays are to be registers, or are not to be: every compiler has a word of
// its own for it.
#define ISOBIT_PRAGMA(words) _Pragma(#words)
#if defined(__CUDACC__) || defined(__clang__)
#define ISOBIT_UNROLL(times) ISOBIT_PRAGMA(unroll)
#define ISOBIT_NO_UNROLL ISOBIT_PRAGMA(unroll 1)
#else
#define ISOBIT_UNROLL(times) ISOBIT_PRAGMA(GCC unroll times)
#define ISOBIT_NO_UNROLL ISOBIT_PRAGMA(GCC unroll 1)
#endif
