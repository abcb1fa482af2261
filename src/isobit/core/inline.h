// SPDX-License-Identifier: Apache-2.0
// Marks what may be compiled for several instruction sets: such a function must never exist out of
// line, or the linker could keep the AVX-512 copy for every caller. nvcc compiles it for the GPU
// too.
#pragma once

#define ISOBIT_INLINE_HOST [[gnu::always_inline]] inline
#if defined(__CUDACC__)
#define ISOBIT_INLINE __host__ __device__ __forceinline__
#define ISOBIT_NOINLINE __host__ __device__ __noinline__
#else
#define ISOBIT_INLINE ISOBIT_INLINE_HOST
#define ISOBIT_NOINLINE [[gnu::noinline]]
#endif
