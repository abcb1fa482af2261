// SPDX-License-Identifier: Apache-2.0
// What the operands of a statement stand for in the function that it is translated into.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "isobit/executor/names.h"

namespace isobit::executor {

class Operands {
 protected:
  explicit Operands(const Text& text)
      : text_(text), function_(std::make_unique<Function>()), names_(text, *function_) {}

  [[noreturn]] void wrong(const std::string& what) const {
    throw PtxError(std::string(text_.name) + ", line " + std::to_string(statement_->line) + ": " +
                   statement_->opcode + ": " + what);
  }
  [[noreturn]] void unknown() const { wrong("the executor does not know this instruction"); }

  std::optional<Names::Register> register_named(std::string_view name) const {
    return names_.register_named(name, statement_->scope);
  }
  std::optional<Variable> local(std::string_view name) const {
    return names_.local(name, statement_->scope);
  }

  // The slot of an operand of so many bytes: a register, or a number in each lane.
  Slot slot(const Operand& operand, int width) {
    if (operand.is == Operand::Is::number) return names_.constant(operand.bits, width);
    if (operand.is != Operand::Is::name) unknown();
    if (operand.name == "_") return names_.new_register(width, 1);
    const std::optional<Names::Register> found = register_named(operand.name);
    if (!found) wrong("no register " + std::string(operand.name));
    if (found->width != width)
      wrong("register " + std::string(operand.name) + " has " + std::to_string(found->width) +
            " bytes, not " + std::to_string(width));
    if (operand.negated) unknown();
    return found->slot;
  }
  // Of registers that may be wider than what they hold.
  std::pair<Slot, int> slot_and_width(const Operand& operand, int least) {
    if (operand.is == Operand::Is::name && operand.name != "_")
      if (const auto found = register_named(operand.name)) return {found->slot, found->width};
    return {slot(operand, least), least};
  }

  const Operand& operand(std::size_t index) const {
    if (index >= statement_->operands.size()) wrong("too few operands");
    return statement_->operands[index];
  }

  // The register of an address without an offset.
  Slot plain_address(const Operand& operand, int width) {
    if (operand.is != Operand::Is::address || operand.offset != 0 || !operand.elements.empty())
      unknown();
    return slot({.name = operand.name}, width);
  }

  const Text& text_;
  std::unique_ptr<Function> function_;
  Names names_;
  const Statement* statement_ = nullptr;
};

}  // namespace isobit::executor
