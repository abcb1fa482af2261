// SPDX-License-Identifier: Apache-2.0
// Vectors and tiles of sums, for each instruction set.
#pragma once

#include <type_traits>

#include "isobit/core/inline.h"
#include "isobit/simd/vec.h"

namespace isobit::convolution::ISOBIT_ISA {

template <class T>
using VectorsOf = std::conditional_t<std::is_same_v<T, double>, simd::F64, simd::F32>;

template <class S>
ISOBIT_INLINE void put(typename S::Real* to, typename S::V value, auto... part) {
  S::template store<simd::Stores::cached, simd::Nan::absent>(to, value, part...);
}

// The largest tile of sums that leaves registers for what they are made of.
struct Shape {
#if ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_avx512
  static constexpr int kRows = 14, kVectors = 2;
#elif ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_avx2
  static constexpr int kRows = 6, kVectors = 2;
#elif ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_neon
  static constexpr int kRows = 8, kVectors = 3;
#else
  static constexpr int kRows = 4, kVectors = 2;
#endif
};

}  // namespace isobit::convolution::ISOBIT_ISA
