// SPDX-License-Identifier: Apache-2.0
// Products of small matrices by a warp, by the model of core/tensor_core.h.
#include <cstdint>
#include <cstring>

#include "isobit/core/tensor_core.h"
#include "isobit/executor/warp.h"

namespace isobit::executor {
namespace {

// Lane 8m + r gives the address of row r of matrix m. slots 0 to 3: the words; 4: the address.
template <bool kTransposed>
void load_eights(Warp& warp, const Instruction& instruction) {
  if (warp.lanes != kAllLanes) fail(warp, instruction, "not all lanes of the warp take part");
  const std::uint32_t* rows = warp.in<std::uint32_t>(instruction.slots[4]);
  std::uint16_t elements[32][8];
  for (int row = 0; row < 8 * instruction.count; ++row) {
    if (rows[row] % 16 != 0) fail(warp, instruction, "a misaligned row");
    if (std::uint64_t{rows[row]} + 16 > static_cast<std::uint64_t>(current.shape.shared_bytes))
      fail(warp, instruction, "a row beyond shared memory");
    std::memcpy(elements[row], warp.block->shared + rows[row], 16);
  }
  count_rows(*warp.counters, rows, 8 * instruction.count);
  for (int m = 0; m < instruction.count; ++m) {
    std::uint32_t* to = warp.out<std::uint32_t>(instruction.slots[m]);
    for (int lane = 0; lane < kLanes; ++lane) {
      const int line = lane / 4;
      const int pair = lane % 4 * 2;
      const std::uint16_t first =
          kTransposed ? elements[8 * m + pair][line] : elements[8 * m + line][pair];
      const std::uint16_t second =
          kTransposed ? elements[8 * m + pair + 1][line] : elements[8 * m + line][pair + 1];
      to[lane] = first | std::uint32_t{second} << 16;
    }
  }
}

// d (slots 0 to 3) = a (4 to 7), 16 x 16, times b (8, 9), 16 x 8, plus c (10 to 13).
void multiply_add(Warp& warp, const Instruction& instruction, tensor_core::Format format) {
  if (warp.lanes != kAllLanes) fail(warp, instruction, "not all lanes of the warp take part");
  tensor_core::Number a[16][16], b[8][16];  // b by columns
  float c[16][8];
  const auto half = [&](Slot slot, int lane, int which) {
    const std::uint32_t word = warp.in<std::uint32_t>(slot)[lane];
    return tensor_core::taken_apart(word >> (16 * which) & 0xffff, format);
  };
  for (int lane = 0; lane < kLanes; ++lane) {
    const int line = lane / 4;
    const int pair = lane % 4 * 2;
    for (int i = 0; i < 4; ++i)
      for (int which = 0; which < 2; ++which)
        a[line + 8 * (i % 2)][pair + which + 8 * (i / 2)] =
            half(instruction.slots[4 + i], lane, which);
    for (int i = 0; i < 2; ++i)
      for (int which = 0; which < 2; ++which)
        b[line][pair + which + 8 * i] = half(instruction.slots[8 + i], lane, which);
    for (int i = 0; i < 4; ++i)
      c[line + 8 * (i / 2)][pair + i % 2] = warp.in<float>(instruction.slots[10 + i])[lane];
  }
  const tensor_core::Generation generation = tensor_core::generation_of(current.capability);
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column)
      c[row][column] =
          tensor_core::multiply_add(a[row], b[column], c[row][column], format, generation);
  for (int i = 0; i < 4; ++i) {
    float* to = warp.out<float>(instruction.slots[i]);
    for (int lane = 0; lane < kLanes; ++lane)
      to[lane] = c[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2];
  }
}

}  // namespace

void load_matrices(Warp& warp, const Instruction& instruction) {
  load_eights<false>(warp, instruction);
}
void load_matrices_transposed(Warp& warp, const Instruction& instruction) {
  load_eights<true>(warp, instruction);
}
void multiply_add_f16(Warp& warp, const Instruction& instruction) {
  multiply_add(warp, instruction, tensor_core::kF16);
}
void multiply_add_bf16(Warp& warp, const Instruction& instruction) {
  multiply_add(warp, instruction, tensor_core::kBf16);
}

}  // namespace isobit::executor
