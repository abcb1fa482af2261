// SPDX-License-Identifier: Apache-2.0
// AMX's registers and instructions, by assembly, since no compiler keeps anything in them; whoever
// calls a function may find them changed, so that nothing is saved. Tiles are 16 lines of 64 bytes.
#pragma once

#include <cstdint>

#include "isobit/core/inline.h"

namespace isobit::matmul::ISOBIT_ISA {

// The registers become whole tiles, and are given back. Nothing throws in between, and a destructor
// would need a symbol that instruction sets share.
ISOBIT_INLINE void configure() {
  struct alignas(64) {
    std::uint8_t palette = 1, start = 0, reserved[14] = {};
    std::uint16_t line_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t lines[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } const configuration;
  asm volatile("ldtilecfg %0" ::"m"(configuration));
}
ISOBIT_INLINE void give_back() { asm volatile("tilerelease" ::: "memory"); }

#define ISOBIT_ZERO(tile) asm volatile("tilezero %%tmm" #tile ::)
#define ISOBIT_LOAD(tile, from, pitch) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"(pitch) : "memory")
#define ISOBIT_STORE(tile, to, pitch) \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"(pitch) : "memory")
// sums += rows cols, in the order of core/amx.h.
#define ISOBIT_MULTIPLY_ADD(sums, rows, cols) \
  asm volatile("tdpbf16ps %%tmm" #cols ", %%tmm" #rows ", %%tmm" #sums ::)

}  // namespace isobit::matmul::ISOBIT_ISA
