// SPDX-License-Identifier: Apache-2.0
// How the handlers of machine code find their operands: the places that the translator gives them.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isobit/executor/warp.h"

namespace isobit::executor {

// What is done to an operand before it is used.
inline constexpr std::uint8_t kNegated = 1, kAbsolute = 2, kInverted = 4;

// Slots of what computes: two of the result, then two of each operand, the lower half first; the
// predicates that it reads, and those that it writes. `changes` counts operands and then
// predicates.
inline constexpr int kResult = 0, kOperands = 2, kReads = 8, kWrites = 10;

// An operand of 32 bits as a whole number; a negated one is ~x + 1, of which carries see both.
class Whole {
 public:
  Whole(const Warp& warp, const Instruction& i, int operand)
      : from_(warp.in<std::uint32_t>(i.slots[kOperands + 2 * operand])) {
    const std::uint8_t change = i.changes[operand];
    flip_ = (change & (kNegated | kInverted)) != 0 ? ~0U : 0;
    plus_ = (change & kNegated) != 0 ? 1 : 0;
  }
  std::uint32_t operator[](int lane) const { return (from_[lane] ^ flip_) + plus_; }
  // To be added up exactly.
  std::uint64_t term(int lane, std::uint32_t shift = 0) const {
    return std::uint64_t{(from_[lane] << shift) ^ flip_} + plus_;
  }

 private:
  const std::uint32_t* from_;
  std::uint32_t flip_, plus_;
};

// Two registers, or the number that stands for both; unchanged.
class Pair {
 public:
  Pair(const Warp& warp, const Instruction& i, int operand)
      : low_(warp.in<std::uint32_t>(i.slots[kOperands + 2 * operand])),
        high_(warp.in<std::uint32_t>(i.slots[kOperands + 2 * operand + 1])) {}
  std::uint64_t operator[](int lane) const { return low_[lane] | std::uint64_t{high_[lane]} << 32; }

 private:
  const std::uint32_t *low_, *high_;
};

class Signs {
 public:
  explicit Signs(std::uint8_t change)
      : keep_((change & kAbsolute) != 0 ? 0x7fff'ffffU : ~0U),
        flip_((change & kNegated) != 0 ? 0x8000'0000U : 0) {}
  std::uint32_t of(std::uint32_t upper) const { return (upper & keep_) ^ flip_; }

 private:
  std::uint32_t keep_, flip_;
};

class Single {
 public:
  Single(const Warp& warp, const Instruction& i, int operand)
      : from_(warp.in<std::uint32_t>(i.slots[kOperands + 2 * operand])),
        signs_(i.changes[operand]) {}
  float operator[](int lane) const { return std::bit_cast<float>(bits(lane)); }
  std::uint32_t bits(int lane) const { return signs_.of(from_[lane]); }

 private:
  const std::uint32_t* from_;
  Signs signs_;
};

class Double {
 public:
  Double(const Warp& warp, const Instruction& i, int operand)
      : low_(warp.in<std::uint32_t>(i.slots[kOperands + 2 * operand])),
        high_(warp.in<std::uint32_t>(i.slots[kOperands + 2 * operand + 1])),
        signs_(i.changes[operand]) {}
  double operator[](int lane) const {
    return std::bit_cast<double>(low_[lane] | std::uint64_t{signs_.of(high_[lane])} << 32);
  }

 private:
  const std::uint32_t *low_, *high_;
  Signs signs_;
};

// A predicate that is read: a bit for each lane.
inline std::uint32_t lanes_holding(const Warp& warp, const Instruction& i, int which) {
  const std::uint32_t bits = *warp.in<std::uint32_t>(i.slots[kReads + which]);
  return (i.changes[3 + which] & kInverted) != 0 ? ~bits : bits;
}

inline void write_predicate(Warp& warp, Slot slot, std::uint32_t bits) {
  if (slot == kNoSlot) return;
  std::uint32_t* to = warp.out<std::uint32_t>(slot);
  *to = (*to & ~warp.lanes) | (bits & warp.lanes);
}

class ResultPair {
 public:
  ResultPair(Warp& warp, const Instruction& i)
      : low_(warp.out<std::uint32_t>(i.slots[kResult])),
        high_(warp.out<std::uint32_t>(i.slots[kResult + 1])) {}
  void set(int lane, std::uint64_t value) const {
    low_[lane] = static_cast<std::uint32_t>(value);
    high_[lane] = static_cast<std::uint32_t>(value >> 32);
  }

 private:
  std::uint32_t *low_, *high_;
};

// What executes an opcode that computes on registers alone, and how it takes its operands, one
// letter each: r a register or number of 32 bits, d of 64, h half a register, p a predicate that is
// read, n a number of the instruction, which is kept; capitals are what it writes. `?` behind a
// letter: it may lack.
struct Computation {
  Handler execute;
  Kind kind;
  std::string_view operands;
  std::string_view changes = "";  // that its operands may have: "-", "|", "~"
};

// Null for an opcode that is unknown. The first is the name, the others what follows behind dots.
using OpcodeParts = std::vector<std::string_view>;
inline std::string together(const OpcodeParts& parts) {
  std::string name;
  for (const std::string_view part : parts) {
    if (!name.empty()) name += '.';
    name += part;
  }
  return name;
}
std::optional<Computation> whole_computation(const OpcodeParts& parts);
std::optional<Computation> real_computation(const OpcodeParts& parts);

// How a comparison joins what it found with a predicate.
enum class Join : std::uint8_t { all, any, one };
inline std::uint32_t joined(std::uint32_t a, std::uint32_t b, std::int64_t join) {
  switch (static_cast<Join>(join)) {
    case Join::all: return a & b;
    case Join::any: return a | b;
    case Join::one: break;
  }
  return a ^ b;
}

// Convergence and control.
void jump_by_register(Warp& warp, const Instruction& instruction);
void branch_where(Warp& warp, const Instruction& instruction);
void branch_together(Warp& warp, const Instruction& instruction);
void await_divergent(Warp& warp, const Instruction& instruction);
void begin_sync(Warp& warp, const Instruction& instruction);
void end_sync(Warp& warp, const Instruction& instruction);
void leave_sync(Warp& warp, const Instruction& instruction);
void never(Warp& warp, const Instruction& instruction);
void once_for_all(Warp& warp, const Instruction& instruction);
void elect(Warp& warp, const Instruction& instruction);
void match_any(Warp& warp, const Instruction& instruction);
// What a vote at a barrier has found, into a predicate.
void result_of_vote(Warp& warp, const Instruction& instruction);
void reduce_or(Warp& warp, const Instruction& instruction);
void vote_any_here(Warp& warp, const Instruction& instruction);
void vote_uniform(Warp& warp, const Instruction& instruction);
void vote_uniform_all(Warp& warp, const Instruction& instruction);
void register_to_uniform(Warp& warp, const Instruction& instruction);
void registers_to_predicates(Warp& warp, const Instruction& instruction);
void predicates_to_register(Warp& warp, const Instruction& instruction);
void combine_predicates(Warp& warp, const Instruction& instruction);
void clear_sync(Warp& warp, const Instruction& instruction);
void load_constant(Warp& warp, const Instruction& instruction);
// What a special register holds in each lane, or null: SR_TID.X and the like.
Handler machine_register(std::string_view word);

}  // namespace isobit::executor
