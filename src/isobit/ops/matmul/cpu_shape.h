// SPDX-License-Identifier: Apache-2.0
// How large a tile of sums is, for each instruction set; convolutions have the same.
#pragma once

#include "isobit/simd/vec.h"

namespace isobit::matmul::ISOBIT_ISA {

// The largest tile of sums that leaves registers for what they are made of.
struct LargestTile {
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

}  // namespace isobit::matmul::ISOBIT_ISA
