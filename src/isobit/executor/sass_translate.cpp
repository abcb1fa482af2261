// SPDX-License-Identifier: Apache-2.0
// From lines of machine code to instructions: registers become slots, addresses targets.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "isobit/executor/sass_accesses.h"

namespace isobit::executor {
namespace {

using Is = SassOperand::Is;
constexpr std::uint32_t kBytes = 16;  // of an instruction

OpcodeParts parts_of(std::string_view opcode) {
  OpcodeParts parts;
  for (std::size_t begin = 0; begin <= opcode.size();) {
    const std::size_t end = std::min(opcode.find('.', begin), opcode.size());
    parts.push_back(opcode.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

class MachineTranslator : MachineAccesses {
 public:
  explicit MachineTranslator(const SassText& text)
      : MachineTranslator(text, std::make_unique<Function>()) {}

  std::unique_ptr<Function> translate() {
    function_->name = text_.name;
    function_->most_threads = text_.most_threads;
    function_->is_machine_code = true;
    function_->parameter_bytes = text_.parameter_bytes;
    if (const auto bank = text_.banks.find(kOtherBank); bank != text_.banks.end())
      function_->constant_bank = bank->second;
    for (const SassLine& line : text_.lines) {
      line_ = &line;
      instruction_ = {};
      instruction_.line = static_cast<std::uint32_t>(function_->code.size()) * kBytes;
      try {
        add();
      } catch (const SassError& error) {
        throw SassError(std::string(text_.name) + ": " + std::string(line.text) + ": " +
                        error.what());
      }
      function_->code.push_back(instruction_);
      function_->opcodes.emplace_back(line.text);
    }
    function_->code.push_back({.execute = trap, .kind = Kind::control});
    function_->opcodes.emplace_back("the end of the function");
    return std::move(function_);
  }

 private:
  MachineTranslator(const SassText& text, std::unique_ptr<Function> function)
      : MachineAccesses(text, *function), text_(text), function_(std::move(function)) {}

  // ---- lines ----

  void add() {
    if (!line_->guard.empty()) {
      instruction_.guard = registers_.predicate(read_operand(line_->guard));
      instruction_.unless = line_->unless;
    }
    const OpcodeParts parts = parts_of(line_->opcode);
    if (computes(parts) || goes_on_elsewhere(parts) || meets(parts) || accesses(parts) ||
        tells_lanes(parts) || moves_predicates(parts))
      return;
    unknown();
  }

  bool computes(OpcodeParts parts) {
    std::optional<Computation> found = real_computation(parts);
    if (!found) found = whole_computation(parts);
    if (!found && parts[0].starts_with('U')) {
      parts[0].remove_prefix(1);
      found = whole_computation(parts);
      if (!found) return false;
      take_operands(*found, parts);
      once(found->execute);
      return true;
    }
    if (!found) return computes_otherwise(parts);
    take_operands(*found, parts);
    return true;
  }

  bool computes_otherwise(const OpcodeParts& parts) {
    if (parts == OpcodeParts{"HFMA2", "MMA"}) {  // two numbers of 16 bits, as ptxas loads them
      require_operands(4);
      if (!is_zero(operand(1)) || !is_zero(operand(2)) || operand(3).is != Is::number) unknown();
      move_into(operand(0), registers_.read(operand(3)));
      return true;
    }
    return false;
  }

  void move_into(const SassOperand& to, Slot from) {
    const Computation copy = *whole_computation({"MOV"});
    as(Kind::move, copy.execute);
    instruction_.slots[kResult] = registers_.written(to);
    instruction_.slots[kOperands] = from;
    fill_operands(1, 0);
  }

  // What an instruction lacks reads as 0, and predicates as not held.
  void fill_operands(int operands, int reads) {
    for (int k = operands; k < 3; ++k)
      instruction_.slots[kOperands + 2 * k] = instruction_.slots[kOperands + 2 * k + 1] =
          registers_.constant(0, 4);
    for (int k = reads; k < 2; ++k) instruction_.slots[kReads + k] = registers_.constant(0, 0);
  }

  void take_operands(const Computation& computation, const OpcodeParts& parts) {
    as(computation.kind, computation.execute);
    std::size_t next = 0;
    int operands = 0, reads = 0, writes = 0;
    const std::string_view letters = computation.operands;
    for (std::size_t k = 0; k < letters.size(); ++k) {
      const bool may_lack = k + 1 < letters.size() && letters[k + 1] == '?';
      if (letters[k] == '?' || (may_lack && !is_predicate(operand(next)))) continue;
      const SassOperand& given = operand(next++);
      switch (letters[k]) {
        case 'D': instruction_.slots[kResult + 1] = registers_.written(given, 1); [[fallthrough]];
        case 'R': instruction_.slots[kResult] = registers_.written(given); break;
        case 'P':
          instruction_.slots[kWrites + writes++] = registers_.written_predicate(given);
          break;
        case 'p': take_predicate(given, reads++); break;
        case 'n':
          if (given.is != Is::number) unknown();
          instruction_.number = given.bits;
          break;
        default: take_operand(given, letters[k], operands++, computation.changes);
      }
    }
    require_operands(next);
    fill_operands(operands, reads);
    for (const std::string_view part : parts)
      if (part == "AND" || part == "OR" || part == "XOR")
        instruction_.number = static_cast<int>(part == "AND"  ? Join::all
                                               : part == "OR" ? Join::any
                                                              : Join::one);
  }

  void take_predicate(const SassOperand& given, int which) {
    instruction_.slots[kReads + which] = registers_.predicate(given);
    instruction_.changes[3 + which] = given.inverted ? kInverted : 0;
  }

  void take_operand(const SassOperand& given, char letter, int which, std::string_view changes) {
    const auto change = [&](bool is, char sign, std::uint8_t bit) {
      if (!is) return;
      if (changes.find(sign) == changes.npos) unknown();
      instruction_.changes[which] |= bit;
    };
    change(given.negated, '-', kNegated);
    change(given.absolute, '|', kAbsolute);
    change(given.inverted, '~', kInverted);
    Slot& low = instruction_.slots[kOperands + 2 * which];
    if (letter == 'h') {
      if (given.is != Is::reg || given.half < 0 || !is_zero(operand(1)) || !operand(1).negated)
        unknown();
      low = registers_.at(given.is, given.index);
      instruction_.number = given.half;
    } else if (letter == 'd') {
      Slot& high = instruction_.slots[kOperands + 2 * which + 1];
      low = given.is == Is::number ? registers_.constant(0, 4) : registers_.read(given);
      high = registers_.read(given, 1);
    } else {
      low = registers_.read(given);
    }
  }

  // ---- branches ----

  std::uint32_t target(const SassOperand& operand) const {
    if (operand.is != Is::number || operand.bits % kBytes != 0 ||
        operand.bits / kBytes >= text_.lines.size())
      throw SassError("it leads to where there is no instruction");
    return operand.bits / kBytes;
  }

  bool goes_on_elsewhere(const OpcodeParts& parts) {
    const std::string_view base = parts[0];
    if (line_->opcode == "EXIT") {
      require_operands(0);
      as(Kind::control, return_from);
    } else if (line_->opcode == "BRA" || line_->opcode == "BRA.U" ||
               line_->opcode == "CALL.REL.NOINC") {
      as(Kind::control, branch);
      if (line_->operands.size() == 2) {
        as(Kind::control, branch_where);
        take_predicate(operand(0), 0);
      } else {
        require_operands(1);
      }
      instruction_.target = target(line_->operands.back());
    } else if (line_->opcode == "BRA.U.ANY") {
      require_operands(1);
      as(Kind::control, branch_together);
      instruction_.target = target(operand(0));
    } else if (line_->opcode == "BRA.DIV") {
      require_operands(2);
      as(Kind::sync, await_divergent);
      instruction_.slots[kOperands] = registers_.read(operand(0));
    } else if (line_->opcode == "RET.REL.NODEC" || line_->opcode == "BRX") {
      require_operands(2);
      as(Kind::control, jump_by_register);
      instruction_.slots[kOperands] = registers_.read(operand(0));
      instruction_.number = number(1);  // BRX counts from the next instruction
      if (base == "BRX") instruction_.number += instruction_.line + kBytes;
    } else {
      return false;
    }
    return true;
  }

  // ---- convergence and barriers ----

  bool meets(const OpcodeParts& parts) {
    const std::string_view opcode = line_->opcode, base = parts[0];
    if (base == "NOP" || base == "YIELD" || base == "MEMBAR" || base == "ERRBAR" ||
        base == "CGAERRBAR" || base == "FENCE" || opcode == "CCTL.IVALL") {
      as(base == "NOP" || base == "YIELD" ? Kind::control : Kind::sync, nothing);
    } else if (opcode == "BSSY") {
      require_operands(2);
      as(Kind::control, begin_sync);
      instruction_.slots[kResult] = registers_.barrier(operand(0));
    } else if (opcode == "BSYNC") {
      require_operands(1);
      as(Kind::sync, end_sync);
      instruction_.slots[kOperands] = registers_.barrier(operand(0));
    } else if (opcode == "BREAK") {
      as(Kind::control, leave_sync);
      const bool some = line_->operands.size() == 2;
      if (some)
        take_predicate(operand(0), 0);
      else
        instruction_.slots[kReads] = registers_.constant(kAllLanes, 4);
      require_operands(some ? 2 : 1);
      instruction_.slots[kResult] = registers_.barrier(line_->operands.back());
    } else if (opcode == "BMOV.32.CLEAR") {
      require_operands(2);
      as(Kind::control, clear_sync);
      instruction_.slots[kResult] = registers_.written(operand(0));
      instruction_.slots[kOperands] = registers_.barrier(operand(1));
    } else if (opcode == "BMOV.32") {
      require_operands(2);
      const Slot from = registers_.read(operand(1));
      move_into(line_->operands[1], from);
      instruction_.slots[kResult] = registers_.barrier(operand(0));
    } else if (opcode == "WARPSYNC.ALL") {
      as(Kind::sync, end_sync);
      instruction_.slots[kOperands] = registers_.constant(kAllLanes, 4);
    } else if (opcode == "WARPSYNC") {
      require_operands(1);
      as(Kind::sync, end_sync);
      instruction_.slots[kOperands] = registers_.read(operand(0));
    } else if (opcode == "WARPSYNC.COLLECTIVE" || opcode == "ENDCOLLECTIVE") {
      as(Kind::sync, never);
    } else if (opcode == "BAR.SYNC.DEFER_BLOCKING") {
      require_operands(1);
      if (number(0) != 0) throw SassError("only barrier 0 is known");
      as(Kind::sync, sync_block);
    } else if (opcode == "BAR.RED.OR.DEFER_BLOCKING") {
      require_operands(2);
      if (number(0) != 0 || operand(1).inverted) unknown();
      as(Kind::sync, vote_in_block);
      instruction_.slots[0] = registers_.vote();
      instruction_.slots[1] = registers_.predicate(operand(1));
    } else if (opcode == "B2R.RESULT") {
      require_operands(2);
      if (!is_zero(operand(0)) || is_zero(operand(1))) unknown();
      as(Kind::move, result_of_vote);
      instruction_.slots[0] = registers_.written_predicate(operand(1));
      instruction_.slots[1] = registers_.vote();
    } else if (opcode == "UCGABAR_ARV") {
      as(Kind::sync, arrive_cluster);
    } else if (opcode == "UCGABAR_WAIT") {
      as(Kind::sync, wait_cluster);
    } else {
      return false;
    }
    return true;
  }

  // ---- what lanes tell each other, and what they hold together ----

  bool tells_lanes(const OpcodeParts& parts) {
    const std::string_view opcode = line_->opcode;
    const auto from_to = [&](Kind kind, Handler handler) {
      require_operands(2);
      as(kind, handler);
      instruction_.slots[kResult] = registers_.written(operand(0));
      instruction_.slots[kOperands] = registers_.read(operand(1));
    };
    if (opcode == "SHFL.BFLY" || opcode == "SHFL.IDX") {
      require_operands(5);
      as(Kind::shuffle, opcode == "SHFL.BFLY" ? shuffle_xor_here : shuffle_index_here);
      instruction_.slots[0] = registers_.written(operand(1));
      for (std::size_t k = 1; k < 4; ++k) instruction_.slots[k] = registers_.read(operand(k + 1));
      instruction_.slots[5] = registers_.written_predicate(operand(0));
    } else if (opcode == "R2UR") {
      from_to(Kind::move, register_to_uniform);
    } else if (opcode == "REDUX.OR") {
      from_to(Kind::shuffle, reduce_or);
    } else if (opcode == "MATCH.ANY") {
      from_to(Kind::shuffle, match_any);
    } else if (opcode == "VOTEU.ANY" || opcode == "VOTE.ANY") {
      as(Kind::shuffle, opcode == "VOTE.ANY" ? vote_any_here : vote_uniform);
      const bool has_lanes = line_->operands.size() == 3;
      if (has_lanes) instruction_.slots[kResult] = registers_.written(operand(0));
      instruction_.slots[kWrites] = registers_.written_predicate(operand(has_lanes ? 1 : 0));
      take_predicate(line_->operands.back(), 0);
      require_operands(has_lanes ? 3 : 2);
    } else if (opcode == "VOTEU.ALL" && line_->operands.size() == 2) {
      as(Kind::shuffle, vote_uniform_all);
      instruction_.slots[kWrites] = registers_.written_predicate(operand(0));
      take_predicate(line_->operands.back(), 0);
    } else if (opcode == "ELECT") {
      require_operands(3);
      if (!is_zero(operand(1)) || !is_zero(operand(2)) || operand(2).inverted) unknown();
      as(Kind::shuffle, elect);
      instruction_.slots[kWrites] = registers_.written_predicate(operand(0));
    } else if (opcode == "S2R" || opcode == "S2UR") {
      require_operands(2);
      const Handler special = machine_register(operand(1).text);
      if (special == nullptr) unknown();
      as(Kind::move, special);
      instruction_.slots[kResult] = registers_.written(operand(0));
      if (opcode == "S2UR") once(special);
    } else if (opcode == "CS2R" && operand(1).text == "SRZ") {
      const Computation zero = *real_computation({"F2F", "F64", "F32"});
      as(Kind::move, zero.execute);
      instruction_.slots[kResult] = registers_.written(operand(0));
      instruction_.slots[kResult + 1] = registers_.written(operand(0), 1);
      fill_operands(0, 0);
    } else {
      return false;
    }
    return parts.size() <= 2;
  }

  bool moves_predicates(const OpcodeParts& parts) {
    if (line_->opcode == "PLOP3.LUT" || line_->opcode == "UPLOP3.LUT") {
      require_operands(7);
      as(Kind::integer, combine_predicates);
      for (int k = 0; k < 2; ++k)
        instruction_.slots[kWrites + k] =
            registers_.written_predicate(operand(static_cast<std::size_t>(k)));
      for (std::size_t k = 0; k < 3; ++k) {
        instruction_.slots[kOperands + static_cast<int>(k)] = registers_.predicate(operand(k + 2));
        instruction_.changes[k] = operand(k + 2).inverted ? kInverted : 0;
      }
      instruction_.number = number(5) | number(6) << 8;
      if (parts[0].starts_with('U')) once(combine_predicates);
      return true;
    }
    if (parts[0] != "R2P" && parts[0] != "P2R") return false;
    const bool to_predicates = line_->opcode == "R2P";
    if (!to_predicates && line_->opcode != "P2R") return false;
    require_operands(to_predicates ? 3 : 4);
    if (operand(to_predicates ? 0 : 1).text != "PR") unknown();
    as(Kind::integer, to_predicates ? registers_to_predicates : predicates_to_register);
    instruction_.number = number(line_->operands.size() - 1);
    if (instruction_.number >= 1 << MachineRegisters::kPredicates) unknown();
    instruction_.slots[kOperands] = registers_.read(operand(to_predicates ? 1 : 2));
    instruction_.slots[to_predicates ? kWrites : kReads] = registers_.predicates();
    if (!to_predicates) instruction_.slots[kResult] = registers_.written(operand(0));
    return true;
  }

  const SassText& text_;
  std::unique_ptr<Function> function_;
};

}  // namespace

MachineCode::MachineCode(std::string_view text) : texts_(machine_functions_of(text)) {}

Function* MachineCode::find(std::string_view name) {
  if (const auto found = functions_.find(name); found != functions_.end())
    return found->second.get();
  const auto text = texts_.find(name);
  if (text == texts_.end()) return nullptr;
  const SassText read = read_machine_function(text->second);
  std::unique_ptr<Function> made = MachineTranslator(read).translate();
  return functions_.emplace(name, std::move(made)).first->second.get();
}

}  // namespace isobit::executor
