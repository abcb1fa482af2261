// SPDX-License-Identifier: Apache-2.0
// Products of small matrices by a warp, by the model of core/tensor_core.h.
#include <cstdint>
#include <cstring>

#include "isobit/core/tensor_core.h"
#include "isobit/executor/warp.h"

namespace isobit::executor {
namespace {

// Matrices of 8 x 8 elements in shared memory. Lane 8m + r gives the address of row r of matrix m.
// slots 0 to 3: the words; 4: the address, to which the number is added.
class Eights {
 public:
  Eights(Warp& warp, const Instruction& instruction) : warp_(warp), instruction_(instruction) {
    if (warp.lanes != kAllLanes) fail(warp, instruction, "not all lanes of the warp take part");
    const std::uint32_t* rows = warp.in<std::uint32_t>(instruction.slots[4]);
    for (int row = 0; row < 8 * instruction.count; ++row) {
      at_[row] = rows[row] + static_cast<std::uint32_t>(instruction.number);
      if (at_[row] % 16 != 0) fail(warp, instruction, "a misaligned row");
      if (std::uint64_t{at_[row]} + 16 > static_cast<std::uint64_t>(current.shape.shared_bytes))
        fail(warp, instruction, "a row beyond shared memory");
    }
    count_rows(*warp.counters, at_, 8 * instruction.count);
  }

  void load(bool transposed) {
    for (int row = 0; row < 8 * instruction_.count; ++row)
      std::memcpy(elements_[row], warp_.block->shared + at_[row], sizeof elements_[row]);
    each(transposed, [](std::uint32_t& word, std::uint16_t& first, std::uint16_t& second) {
      word = first | std::uint32_t{second} << 16;
    });
  }
  void store(bool transposed) {
    each(transposed, [](std::uint32_t& word, std::uint16_t& first, std::uint16_t& second) {
      first = static_cast<std::uint16_t>(word);
      second = static_cast<std::uint16_t>(word >> 16);
    });
    for (int row = 0; row < 8 * instruction_.count; ++row)
      std::memcpy(warp_.block->shared + at_[row], elements_[row], sizeof elements_[row]);
  }

 private:
  // A lane's word of a matrix, and the two elements that are its halves.
  template <class Body>
  void each(bool transposed, const Body& body) {
    for (int m = 0; m < instruction_.count; ++m) {
      std::uint32_t* words = warp_.out<std::uint32_t>(instruction_.slots[m]);
      for (int lane = 0; lane < kLanes; ++lane) {
        const int line = lane / 4;
        const int pair = lane % 4 * 2;
        auto* const rows = elements_ + 8 * m;
        body(words[lane], transposed ? rows[pair][line] : rows[line][pair],
             transposed ? rows[pair + 1][line] : rows[line][pair + 1]);
      }
    }
  }

  Warp& warp_;
  const Instruction& instruction_;
  std::uint32_t at_[kLanes] = {};
  std::uint16_t elements_[kLanes][8];
};

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
  Eights(warp, instruction).load(false);
}
void load_matrices_transposed(Warp& warp, const Instruction& instruction) {
  Eights(warp, instruction).load(true);
}
void store_matrices(Warp& warp, const Instruction& instruction) {
  Eights(warp, instruction).store(false);
}
void store_matrices_transposed(Warp& warp, const Instruction& instruction) {
  Eights(warp, instruction).store(true);
}
void multiply_add_f16(Warp& warp, const Instruction& instruction) {
  multiply_add(warp, instruction, tensor_core::kF16);
}
void multiply_add_bf16(Warp& warp, const Instruction& instruction) {
  multiply_add(warp, instruction, tensor_core::kBf16);
}

}  // namespace isobit::executor
