// SPDX-License-Identifier: Apache-2.0
// Products of small matrices by a warp, in PTX. host/matrix.h says what the names mean.
#pragma once

#include <type_traits>

#include "isobit/simt/cuda/device.h"

namespace isobit::simt {

template <bool kTransposed>
ISOBIT_DEVICE void load_matrices(unsigned (&words)[4], const void* row) {
#if __CUDA_ARCH__ >= 750
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(detail::shared_address(row))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(detail::shared_address(row))
                 : "memory");
#else
  __trap();
#endif
}

template <class T>
ISOBIT_DEVICE void multiply_add(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
#define ISOBIT_MMA(types)                                               \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." types                    \
      ".f32 "                                                           \
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])      \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
  if constexpr (std::is_same_v<T, bf16>)
    ISOBIT_MMA("bf16.bf16");
  else
    ISOBIT_MMA("f16.f16");
#undef ISOBIT_MMA
#else
  __trap();
#endif
}

}  // namespace isobit::simt
