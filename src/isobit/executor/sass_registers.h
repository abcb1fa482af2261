// SPDX-License-Identifier: Apache-2.0
// The registers of a function of machine code: which places in a warp's registers they stand for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "isobit/executor/names.h"
#include "isobit/executor/sass_text.h"

namespace isobit::executor {

[[noreturn]] inline void unknown() {
  throw SassError("the executor does not know this instruction");
}

inline bool is_zero(const SassOperand& operand) { return operand.index == SassOperand::kZero; }
inline bool is_predicate(const SassOperand& operand) {
  return operand.is == SassOperand::Is::predicate ||
         operand.is == SassOperand::Is::uniform_predicate;
}

class MachineRegisters {
 public:
  using Is = SassOperand::Is;
  static constexpr int kUniforms = 64, kBarriers = 16, kPredicates = 7;

  // Gives every register that the text names its place in the function.
  MachineRegisters(const SassText& text, Function& function) : constants_(function) {
    int most = 0;
    for (const SassLine& line : text.lines)
      for (const SassOperand& operand : line.operands) {
        if (operand.is == Is::reg && !is_zero(operand)) most = std::max(most, operand.index);
        if (operand.reg != SassOperand::kZero) most = std::max(most, operand.reg);
      }
    uniforms_ = static_cast<Slot>(most + 4) * kSize;  // an operand may be the first of four
    barriers_ = uniforms_ + kUniforms * kSize;
    nowhere_ = barriers_ + kBarriers * kSize;
    predicates_ = nowhere_ + kSize;
    uniform_predicates_ = predicates_ + kPredicates * kPredicate;
    vote_ = uniform_predicates_ + kPredicates * kPredicate;
    function.register_bytes = aligned(vote_ + kPredicate, kSlotAlignment);
  }

  Slot constant(std::uint64_t bits, int width) { return constants_.slot(bits, width); }

  Slot at(Is is, int index) const {
    if (is == Is::uniform && index >= kUniforms) unknown();
    return (is == Is::uniform ? uniforms_ : 0) + static_cast<Slot>(index) * kSize;
  }
  // Of a number, or of the register that lies `offset` behind the one that the operand names.
  Slot read(const SassOperand& operand, int offset = 0) {
    if (operand.is == Is::number) {
      if (offset != 0 && !operand.is_real) unknown();
      return constant(operand.bits, 4);
    }
    require_register(operand);
    return is_zero(operand) ? constant(0, 4) : at(operand.is, operand.index + offset);
  }
  Slot written(const SassOperand& operand, int offset = 0) const {
    require_register(operand);
    return is_zero(operand) ? nowhere_ : at(operand.is, operand.index + offset);
  }

  // P0, behind which the others lie.
  Slot predicates() const { return predicates_; }
  Slot predicate(const SassOperand& operand) {
    if (!is_predicate(operand)) unknown();
    if (is_zero(operand)) return constant(1, 0);
    if (operand.index >= kPredicates) unknown();
    return (operand.is == Is::predicate ? predicates_ : uniform_predicates_) +
           static_cast<Slot>(operand.index) * kPredicate;
  }
  // Of PT nothing is kept.
  Slot written_predicate(const SassOperand& operand) {
    if (operand.inverted) unknown();
    return is_predicate(operand) && is_zero(operand) ? kNoSlot : predicate(operand);
  }

  // What the last vote at a barrier has found, a predicate that no instruction names.
  Slot vote() const { return vote_; }

  Slot barrier(const SassOperand& operand) const {
    if (operand.is != Is::barrier || operand.index >= kBarriers) unknown();
    return barriers_ + static_cast<Slot>(operand.index) * kSize;
  }

 private:
  static constexpr Slot kSize = 4 * kLanes, kPredicate = 4;

  static void require_register(const SassOperand& operand) {
    if ((operand.is != Is::reg && operand.is != Is::uniform) || operand.half >= 0) unknown();
  }

  Constants constants_;
  Slot uniforms_ = 0, barriers_ = 0, nowhere_ = 0, predicates_ = 0, uniform_predicates_ = 0;
  Slot vote_ = 0;
};

}  // namespace isobit::executor
