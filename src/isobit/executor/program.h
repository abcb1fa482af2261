// SPDX-License-Identifier: Apache-2.0
// Functions as they execute: instructions whose operands are places in a warp's registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "isobit/executor/counters.h"
#include "isobit/executor/ptx_text.h"

namespace isobit::executor {

struct Warp;
struct Instruction;
struct Function;
using Handler = void (*)(Warp&, const Instruction&);

// Where 32 values of an operand lie, one for each lane: an offset into the registers of a call or,
// with this bit, into the function's constants. A predicate is one word, of a bit for each lane.
using Slot = std::uint32_t;
inline constexpr Slot kConstant = 0x8000'0000;
inline constexpr Slot kNoSlot = 0xffff'ffff;

enum class Space : std::uint8_t { generic, global, shared, local };

// What an address counts from, beside its number. In machine code it is a sum: of the registers of
// slot 4, of slot 5 as its upper half where there is one, and of slot 6.
enum class Base : std::uint8_t { reg64, reg32, parameters, own_local, none, machine };

struct Instruction {
  Handler execute = nullptr;
  Kind kind = Kind::integer;
  std::uint32_t line = 0;  // of PTX; of machine code the address
  Slot guard = kNoSlot;    // the lanes that execute it, or with `unless` those that do not
  bool unless = false;

  Slot slots[14] = {kNoSlot, kNoSlot, kNoSlot, kNoSlot, kNoSlot, kNoSlot, kNoSlot,
                    kNoSlot, kNoSlot, kNoSlot, kNoSlot, kNoSlot, kNoSlot, kNoSlot};
  const std::vector<Slot>* list = nullptr;  // sums, which are more than there are slots
  std::int64_t number = 0;                  // an address's offset, a group of copies, and the like

  // Of accesses to memory, and of packing: an element's bytes there and in its register.
  std::uint8_t bytes = 4, width = 4, count = 1;
  bool is_signed = false;
  Space space = Space::generic;
  Base base = Base::none;

  std::uint32_t target = 0;  // of a branch
  const struct Call* call = nullptr;

  // Of machine code: what is done to each operand before it is used (sass_operands.h), and what a
  // warp does once for all its lanes.
  std::uint8_t changes[5] = {};
  Handler once = nullptr;
};

struct Variable {
  std::uint32_t offset, bytes;
};

struct Call {
  Function* callee = nullptr;
  std::vector<Variable> arguments, results;  // in the caller's local memory
};

struct Function {
  std::string name;
  std::vector<Instruction> code;
  std::vector<std::string> opcodes;  // of the code, for messages
  std::vector<std::unique_ptr<Call>> calls;
  std::vector<std::unique_ptr<std::vector<Slot>>> lists;
  std::vector<std::byte> constants;
  std::vector<Variable> parameters;  // of a kernel, in its buffer; else in local memory
  std::vector<Variable> results;
  std::uint32_t parameter_bytes = 0, register_bytes = 0, local_bytes = 0;
  int most_threads = 1024;

  bool is_machine_code = false;
  std::vector<std::byte> constant_bank;  // of machine code, beside the launch's

  // For messages.
  std::string place_of(const Instruction& instruction) const;
};

// The functions of a module of PTX, translated as they are asked for.
class Module {
 public:
  explicit Module(std::string text);

  // Null where there is none. Throws PtxError for what the executor does not know or refuses.
  Function* find(std::string_view name);

 private:
  std::string text_;
  std::map<std::string, Span, std::less<>> spans_;
  std::map<std::string, std::unique_ptr<Function>, std::less<>> functions_;
};

// The functions of machine code, translated as they are asked for, from a text that outlives them.
class MachineCode {
 public:
  explicit MachineCode(std::string_view text);

  // Null where there is none. Throws SassError for what the executor does not know.
  Function* find(std::string_view name);

 private:
  std::map<std::string_view, std::string_view> texts_;
  std::map<std::string, std::unique_ptr<Function>, std::less<>> functions_;
};

// What executes an opcode that computes on registers alone, and the bytes of its operands (0: a
// predicate), the result first.
struct Operation {
  Handler execute;
  Kind kind;
  std::vector<int> widths;
};
// Null for an opcode that is unknown. Throws PtxError for one that is refused, and says why.
const Operation* operation_named(std::string_view opcode);

}  // namespace isobit::executor
