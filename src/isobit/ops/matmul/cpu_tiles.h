// SPDX-License-Identifier: Apache-2.0
// AMX's registers and instructions, by assembly, since no compiler keeps anything in them; whoever
// calls a function may find them changed, so that nothing is saved. Tiles are 16 lines of 64 bytes.
// And products of up to two panels by two.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/inline.h"
#include "isobit/ops/matmul/cpu_kernels.h"

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

// What is fetched while tiles are multiplied: so many lines a step.
struct NextLines {
  const std::byte* next = nullptr;
  std::int64_t lines = 0;
};

// So many panels of a and of b, and so many steps of k, whose sums go to or on from c: the sums in
// 0 and 1, of the rows in 4, or in 2 and 3, of those in 5; the columns in 6 and 7.
template <int kDown, int kAcross>
ISOBIT_INLINE void multiply_tiles(const Tiles& tiles, const std::byte* a, const std::byte* b,
                                  float* c, std::int64_t steps, bool adds, NextLines ahead = {}) {
  constexpr std::int64_t kLanes = TileKernels::kLanes, kTile = TileKernels::kBytes, kLine = 64;
  const std::int64_t pitch = tiles.c_pitch * static_cast<std::int64_t>(sizeof(float));
  float* const below = c + kLanes * tiles.c_pitch;
  if (adds) {
    ISOBIT_LOAD(0, c, pitch);
    if constexpr (kAcross == 2) ISOBIT_LOAD(1, c + kLanes, pitch);
    if constexpr (kDown == 2) ISOBIT_LOAD(2, below, pitch);
    if constexpr (kDown * kAcross == 4) ISOBIT_LOAD(3, below + kLanes, pitch);
  } else {
    ISOBIT_ZERO(0);
    if constexpr (kAcross == 2) ISOBIT_ZERO(1);
    if constexpr (kDown == 2) ISOBIT_ZERO(2);
    if constexpr (kDown * kAcross == 4) ISOBIT_ZERO(3);
  }
  for (std::int64_t step = 0; step < steps; ++step, a += kTile, b += kTile) {
    ISOBIT_LOAD(6, b, kLine);
    ISOBIT_LOAD(4, a, kLine);
    ISOBIT_MULTIPLY_ADD(0, 4, 6);
    if constexpr (kAcross == 2) {
      ISOBIT_LOAD(7, b + tiles.b_pitch, kLine);
      ISOBIT_MULTIPLY_ADD(1, 4, 7);
    }
    if constexpr (kDown == 2) {
      ISOBIT_LOAD(5, a + tiles.a_pitch, kLine);
      ISOBIT_MULTIPLY_ADD(2, 5, 6);
    }
    if constexpr (kDown * kAcross == 4) ISOBIT_MULTIPLY_ADD(3, 5, 7);
    for (std::int64_t line = 0; line < ahead.lines; ++line, ahead.next += kLine)
      __builtin_prefetch(ahead.next, 0, 2);
  }
  ISOBIT_STORE(0, c, pitch);
  if constexpr (kAcross == 2) ISOBIT_STORE(1, c + kLanes, pitch);
  if constexpr (kDown == 2) ISOBIT_STORE(2, below, pitch);
  if constexpr (kDown * kAcross == 4) ISOBIT_STORE(3, below + kLanes, pitch);
}

}  // namespace isobit::matmul::ISOBIT_ISA
