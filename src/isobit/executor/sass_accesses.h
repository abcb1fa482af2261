// SPDX-License-Identifier: Apache-2.0
// Lines of machine code that reach memory: what the translator makes of them.
#pragma once

#include <cstdint>
#include <string_view>

#include "isobit/executor/sass_operands.h"
#include "isobit/executor/sass_registers.h"

namespace isobit::executor {

// The line that is translated, and the instruction that becomes of it.
class MachineLine {
 protected:
  using Is = SassOperand::Is;

  MachineLine(const SassText& text, Function& function) : registers_(text, function) {}

  const SassOperand& operand(std::size_t index) const {
    if (index >= line_->operands.size()) throw SassError("too few operands");
    return line_->operands[index];
  }
  void require_operands(std::size_t count) const {
    if (line_->operands.size() != count) unknown();
  }
  std::uint32_t number(std::size_t index) const {
    if (operand(index).is != Is::number) unknown();
    return operand(index).bits;
  }

  void as(Kind kind, Handler handler) {
    instruction_.kind = kind;
    instruction_.execute = handler;
  }
  void once(Handler handler) {
    instruction_.execute = once_for_all;
    instruction_.once = handler;
  }

  MachineRegisters registers_;
  const SassLine* line_ = nullptr;
  Instruction instruction_;
};

class MachineAccesses : protected MachineLine {
 protected:
  using MachineLine::MachineLine;

  static constexpr int kOtherBank = 2;  // of constants, beside the launch's

  // Whether the line is one of these, which it then translates.
  bool accesses(const OpcodeParts& parts) {
    const std::string_view base = parts[0];
    if (base == "LDC" || base == "ULDC") {
      constant(parts, base == "ULDC");
    } else if (base == "SYNCS" || base == "UBLKCP") {
      arrival_or_copy();
    } else if (base == "ATOMG") {
      add_atomically();
    } else if (base == "RED" || base == "REDG") {
      add_float_atomically();
    } else if ((base.starts_with("LD") || base.starts_with("ST")) && base.size() <= 3) {
      const bool loads = base.starts_with("LD");
      const std::string_view space = base.substr(2);
      instruction_.space = space == "G"   ? Space::global
                           : space == "S" ? Space::shared
                           : space == "L" ? Space::local
                                          : Space::generic;
      if (space.empty() == (instruction_.space != Space::generic)) unknown();
      access(parts, loads);
    } else {
      return false;
    }
    return true;
  }

 private:
  void address(const SassOperand& operand) {
    if (operand.is != Is::address) unknown();
    instruction_.base = Base::machine;
    instruction_.number = operand.offset;
    const auto slot = [&](Is is, int index) {
      return index == SassOperand::kZero ? registers_.constant(0, 4) : registers_.at(is, index);
    };
    instruction_.slots[4] = slot(Is::reg, operand.reg);
    instruction_.slots[6] = slot(Is::uniform, operand.uniform);
    if (operand.is_wide && operand.reg != SassOperand::kZero)
      instruction_.slots[5] = registers_.at(Is::reg, operand.reg + 1);
    else if (instruction_.space == Space::global || instruction_.space == Space::generic)
      unknown();
  }

  void access(const OpcodeParts& parts, bool loads) {
    as(loads ? Kind::load : Kind::store, loads ? load : store);
    const bool has_e = instruction_.space == Space::global || instruction_.space == Space::generic;
    if (has_e && (parts.size() < 2 || parts[1] != "E")) unknown();
    for (std::size_t k = has_e ? 2 : 1; k < parts.size(); ++k) {
      const std::string_view part = parts[k];
      if (part == "64" || part == "128")
        instruction_.count = part == "64" ? 2 : 4;
      else if (part == "U8" || part == "S8" || part == "U16" || part == "S16") {
        instruction_.bytes = part.ends_with("8") ? 1 : 2;
        instruction_.is_signed = part[0] == 'S';
      } else if (part != "EF" && part != "LU" &&       // how to cache
                 part != "STRONG" && part != "GPU") {  // seen by all blocks, as everything here is
        unknown();
      }
    }
    require_operands(2);
    address(operand(loads ? 1 : 0));
    const SassOperand& values = operand(loads ? 0 : 1);
    for (int k = 0; k < instruction_.count; ++k)
      instruction_.slots[k] = loads ? registers_.written(values, k) : registers_.read(values, k);
  }

  void add_atomically() {
    if (line_->opcode != "ATOMG.E.ADD.STRONG.GPU") unknown();
    require_operands(4);
    if (registers_.written_predicate(operand(0)) != kNoSlot) unknown();
    as(Kind::store, atomic_add);
    instruction_.space = Space::global;
    instruction_.bytes = 4;
    instruction_.slots[0] = registers_.written(operand(1));
    address(operand(2));
    instruction_.slots[7] = registers_.read(operand(3));
  }

  void add_float_atomically() {
    if (line_->opcode != "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU" &&
        line_->opcode != "RED.E.ADD.F32.FTZ.RN.STRONG.GPU")
      unknown();
    require_operands(2);
    as(Kind::store, atomic_add_float);
    instruction_.space = Space::global;
    instruction_.bytes = 4;
    address(operand(0));
    instruction_.slots[7] = registers_.read(operand(1));
  }

  void constant(const OpcodeParts& parts, bool is_uniform) {
    require_operands(2);
    as(Kind::load, load_constant);
    const SassOperand& from = operand(1);
    if (from.is != Is::constant || (from.bank != 0 && from.bank != kOtherBank)) unknown();
    if (parts.size() > 2) unknown();
    if (parts.size() == 2) {
      if (parts[1] != "64" && parts[1] != "U8" && parts[1] != "U16") unknown();
      instruction_.bytes = parts[1] == "64" ? 8 : parts[1] == "U8" ? 1 : 2;
    }
    instruction_.count = static_cast<std::uint8_t>(from.bank);
    instruction_.number = from.offset;
    const bool is_indexed = from.reg != SassOperand::kZero || from.uniform != SassOperand::kZero;
    if (from.reg != SassOperand::kZero && from.uniform != SassOperand::kZero) unknown();
    instruction_.slots[kOperands] = !is_indexed ? registers_.constant(0, 4)
                                    : from.reg != SassOperand::kZero
                                        ? registers_.at(Is::reg, from.reg)
                                        : registers_.at(Is::uniform, from.uniform);
    if (from.bank == 0 && !is_indexed &&
        !is_known_constant(static_cast<std::uint32_t>(from.offset), instruction_.bytes))
      throw SassError("it is not known what the driver puts there");
    instruction_.slots[kResult] = registers_.written(operand(0));
    if (instruction_.bytes == 8)
      instruction_.slots[kResult + 1] = registers_.written(operand(0), 1);
    if (is_uniform) once(load_constant);
  }

  void arrival_or_copy() {
    const std::string_view opcode = line_->opcode;
    instruction_.space = Space::shared;
    if (opcode == "SYNCS.EXCH.64") {
      as(Kind::sync, exchange_arrival);
      if (!is_zero(operand(0))) unknown();
      address(operand(1));
      instruction_.slots[0] = registers_.read(operand(2));
      instruction_.slots[1] = registers_.read(operand(2), 1);
    } else if (opcode == "SYNCS.ARRIVE.TRANS64") {
      as(Kind::sync, expect_machine_bytes);
      if (!is_zero(operand(0))) unknown();
      address(operand(1));
      instruction_.slots[0] = registers_.read(operand(2));
    } else if (opcode == "SYNCS.PHASECHK.TRANS64.TRYWAIT") {
      as(Kind::sync, check_phase);
      instruction_.slots[0] = registers_.written_predicate(operand(0));
      address(operand(1));
      instruction_.slots[1] = registers_.read(operand(2));
    } else if (opcode == "UBLKCP.S.G") {
      as(Kind::copy, copy_bulk_once);
      const int to = plain_uniform(operand(0)), from = plain_uniform(operand(1));
      instruction_.slots[0] = registers_.at(Is::uniform, to);
      instruction_.slots[1] = registers_.at(Is::uniform, to + 1);
      instruction_.slots[2] = registers_.at(Is::uniform, from);
      instruction_.slots[3] = registers_.at(Is::uniform, from + 1);
      instruction_.slots[4] = registers_.read(operand(2));
    } else {
      unknown();
    }
    require_operands(3);
  }
  int plain_uniform(const SassOperand& operand) const {
    if (operand.is != Is::address || operand.reg != SassOperand::kZero || operand.offset != 0 ||
        operand.uniform == SassOperand::kZero)
      unknown();
    return operand.uniform;
  }
};

}  // namespace isobit::executor
