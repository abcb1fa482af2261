// SPDX-License-Identifier: Apache-2.0
// Products by a warpgroup (wgmma), of operands in shared memory that descriptors name, by the model
// of core/tensor_core.h. They are made as they begin or, as copies land, as late as they may.
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "isobit/core/tensor_core.h"
#include "isobit/executor/warp.h"

namespace isobit::executor {
namespace {

using tensor_core::kDepth;
using tensor_core::Number;

constexpr int kRows = 16;  // of a warp, of 64 of its group
constexpr std::uint32_t kLine = 128, kEight = 8 * kLine, kPiece = 16;

// Where an operand lies: lanes (rows of a, columns of b) by 16 of k.
struct Operand {
  std::uint32_t start, from_box, from_eight;  // bytes
  bool along_k;

  std::uint32_t at(std::uint32_t lane, std::uint32_t k) const {
    const std::uint32_t plain =
        along_k ? start + lane / 8 * from_eight + lane % 8 * kLine + k * 2
                : start + lane / 64 * from_box + lane % 64 * 2 + k / 8 * from_eight + k % 8 * kLine;
    return plain ^ (plain >> 7 & 7) << 4;
  }
};

// By its descriptor, and whether lines lie across k.
Operand operand(std::uint64_t word, bool across) {
  const auto bytes = [&](int bit) { return static_cast<std::uint32_t>(word >> bit & 0x3fff) << 4; };
  return {bytes(0), bytes(16), bytes(32), !across};
}

std::uint64_t descriptor(const Warp& warp, const Instruction& instruction, Slot slot) {
  const std::uint64_t* words = warp.in<std::uint64_t>(slot);
  for (int lane = 1; lane < kLanes; ++lane)
    if (words[lane] != words[0]) fail(warp, instruction, "lanes with different descriptors");
  if (words[0] >> 62 != 1 || (words[0] >> 49 & 7) != 0 || (words[0] << 4 & (kEight - kLine)) != 0)
    fail(warp, instruction, "an operand that is not mixed in lines of 128 bytes from 1024 on");
  return words[0];
}

std::uint16_t element(Warp& warp, const Instruction& instruction, const Operand& from, int lane,
                      int k) {
  const std::uint32_t at = from.at(static_cast<std::uint32_t>(lane), static_cast<std::uint32_t>(k));
  if (std::uint64_t{at} + 2 > static_cast<std::uint64_t>(current.shape.shared_bytes))
    fail(warp, instruction, "an operand beyond shared memory");
  std::uint16_t found;
  std::memcpy(&found, warp.block->shared + at, sizeof found);
  return found;
}

// In wavefronts of eight pieces of 16 bytes: of eight lanes where k is adjacent, else of eight k's.
void count_operand(Warp& warp, const Operand& from, int first, int lanes) {
  for (int lane = first; lane < first + lanes; lane += 8)
    for (std::uint32_t k = 0; k < kDepth; k += 8) {
      std::uint32_t rows[8];
      for (std::uint32_t i = 0; i < 8; ++i) {
        const auto l = static_cast<std::uint32_t>(lane);
        rows[i] = (from.along_k ? from.at(l + i, k) : from.at(l, k + i)) / kPiece * kPiece;
      }
      count_rows(*warp.counters, rows, 8);
    }
}

// An element of 16 by 16 in the registers of a warp, as mma takes them.
std::uint16_t word_of(const Product& product, int row, int k) {
  const std::uint32_t word = product.words[row / 8 + k / 8 * 2][row % 8 * 4 + k % 8 / 2];
  return static_cast<std::uint16_t>(word >> (k % 2 * 16));
}

// Whoever writes into registers under a product changes it, and nobody says how.
void require_words(const Warp& warp, const Product& product) {
  const Instruction& instruction = *product.instruction;
  for (int i = 0; i < instruction.count; ++i)
    if (std::memcmp(warp.in<std::uint32_t>(instruction.slots[3 + i]), product.words[i],
                    sizeof product.words[i]) != 0)
      fail(warp, instruction, "registers of a that were written while products were under way");
}

// sums in the order of the instruction's registers, and of lanes.
void make(Warp& warp, const Product& product, float (*sums)[kLanes]) {
  const Instruction& instruction = *product.instruction;
  const tensor_core::Format format = product.of_bf16 ? tensor_core::kBf16 : tensor_core::kF16;
  const tensor_core::Generation generation = tensor_core::generation_of(current.capability);
  const bool in_registers = instruction.count != 0;
  const Operand a = operand(product.a, (instruction.number & 1) != 0);
  const Operand b = operand(product.b, (instruction.number & 2) != 0);
  const int first = warp.index % 4 * kRows,
            columns = 2 * static_cast<int>(instruction.list->size());
  Number rows[kRows][kDepth];
  for (int row = 0; row < kRows; ++row)
    for (int k = 0; k < kDepth; ++k)
      rows[row][k] = tensor_core::taken_apart(
          in_registers ? word_of(product, row, k) : element(warp, instruction, a, first + row, k),
          format);
  for (int column = 0; column < columns; ++column) {
    Number numbers[kDepth];
    for (int k = 0; k < kDepth; ++k)
      numbers[k] = tensor_core::taken_apart(element(warp, instruction, b, column, k), format);
    for (int row = 0; row < kRows; ++row) {
      float& sum = sums[column / 8 * 4 + row / 8 * 2 + column % 2][row % 8 * 4 + column % 8 / 2];
      sum = tensor_core::multiply_add(rows[row], numbers, sum, format, generation);
    }
  }
  if (!in_registers) count_operand(warp, a, first, kRows);
  if (warp.index % 4 == 0) count_operand(warp, b, 0, columns);
}

void require_warp(Warp& warp, const Instruction& instruction) {
  if (warp.lanes != kAllLanes) fail(warp, instruction, "not all lanes of the warp take part");
}

void take_sums(Warp& warp, const std::vector<Slot>& slots, float (*sums)[kLanes]) {
  for (std::size_t i = 0; i < slots.size(); ++i)
    std::memcpy(sums[i], warp.in<float>(slots[i]), sizeof sums[i]);
}
void give_sums(Warp& warp, const std::vector<Slot>& slots, float (*sums)[kLanes]) {
  for (std::size_t i = 0; i < slots.size(); ++i)
    std::memcpy(warp.out<float>(slots[i]), sums[i], sizeof sums[i]);
}

// sums (the list), a's and b's descriptors in slots 0 and 1, whether sums are added to in 2; from
// slot 3 on the registers of an a that has no descriptor, of which there are `count`.
void multiply_add(Warp& warp, const Instruction& instruction, bool of_bf16) {
  require_warp(warp, instruction);
  Products& products = warp.products;
  if ((warp.index / 4 + 1) * 4 * kLanes > current.shape.threads)
    fail(warp, instruction, "a warp that is none of four whole ones");
  if (*warp.in<std::uint32_t>(instruction.slots[2]) != kAllLanes)
    fail(warp, instruction, "sums that are not added to");
  if (!products.begun) fail(warp, instruction, "a product without a fence since the last wait");
  const std::vector<Slot>& slots = *instruction.list;
  Product product{&instruction,
                  instruction.count != 0 ? 0 : descriptor(warp, instruction, instruction.slots[0]),
                  descriptor(warp, instruction, instruction.slots[1]), of_bf16};
  for (int i = 0; i < instruction.count; ++i)
    std::memcpy(product.words[i], warp.in<std::uint32_t>(instruction.slots[3 + i]),
                sizeof product.words[i]);
  if (current.copies_land_early) {
    take_sums(warp, slots, products.made);
    make(warp, product, products.made);
    give_sums(warp, slots, products.made);
    return;
  }
  if (products.sums == nullptr) {
    products.sums = &slots;
    products.registers = warp.registers;
    take_sums(warp, slots, products.made);
    for (const Slot slot : slots) std::memset(warp.out<float>(slot), 0xff, sizeof(float) * kLanes);
  } else if (*products.sums != slots || products.registers != warp.registers) {
    fail(warp, instruction, "sums in other registers than those under way");
  }
  products.open.push_back(product);
}

void begin_products(Warp& warp, const Instruction& instruction) {
  require_warp(warp, instruction);
  warp.products.begun = true;
}
void multiply_group_f16(Warp& warp, const Instruction& instruction) {
  multiply_add(warp, instruction, false);
}
void multiply_group_bf16(Warp& warp, const Instruction& instruction) {
  multiply_add(warp, instruction, true);
}
void commit_products(Warp& warp, const Instruction& instruction) {
  require_warp(warp, instruction);
  warp.products.committed.push_back(std::move(warp.products.open));
  warp.products.open.clear();
}
// Until at most `number` groups are under way.
void wait_products(Warp& warp, const Instruction& instruction) {
  require_warp(warp, instruction);
  Products& products = warp.products;
  products.begun = false;
  for (; std::ssize(products.committed) > instruction.number; products.committed.pop_front())
    for (const Product& product : products.committed.front()) {
      if (products.registers == warp.registers) require_words(warp, product);
      make(warp, product, products.made);
    }
  if (products.sums == nullptr || !products.committed.empty() || !products.open.empty()) return;
  if (products.registers != warp.registers)
    fail(warp, instruction, "sums of another call's registers");
  give_sums(warp, *products.sums, products.made);
  products.sums = nullptr;
}

// Nothing here depends on how many registers a thread has.
void set_registers(Warp& warp, const Instruction& instruction) {
  require_warp(warp, instruction);
  if (instruction.number % 8 != 0 || instruction.number < 24 || instruction.number > 256)
    fail(warp, instruction, "a number of registers that no thread has");
}

}  // namespace

Handler warpgroup_handler(std::string_view opcode) {
  constexpr std::pair<std::string_view, Handler> kHandlers[] = {
      {"setmaxnreg.dec.sync.aligned.u32", set_registers},
      {"setmaxnreg.inc.sync.aligned.u32", set_registers},
      {"wgmma.fence.sync.aligned", begin_products},
      {"wgmma.commit_group.sync.aligned", commit_products},
      {"wgmma.wait_group.sync.aligned", wait_products},
      {"wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", multiply_group_f16},
      {"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", multiply_group_bf16},
      {"wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", multiply_group_f16},
      {"wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", multiply_group_bf16}};
  for (const auto& [known, handler] : kHandlers)
    if (known == opcode) return handler;
  return nullptr;
}

}  // namespace isobit::executor
