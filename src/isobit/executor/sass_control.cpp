// SPDX-License-Identifier: Apache-2.0
// How the lanes of a warp part and meet in machine code, what they hold once for all of them, and
// the constants of a launch.
#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "isobit/executor/sass_operands.h"

namespace isobit::executor {
namespace {

using u32 = std::uint32_t;

// A register of the warp: the same for all lanes, whoever writes it.
void set_uniform(Warp& warp, Slot slot, u32 value) {
  u32* to = warp.out<u32>(slot);
  for (int lane = 0; lane < kLanes; ++lane) to[lane] = value;
}

void wake(Warp& warp) {
  for (Group& group : warp.groups)
    if (group.state == State::awaits_lanes) group.state = State::runs;
}

}  // namespace

// ---- branches ----------------------------------------------------------------------------------

// BRA P: to the target, where a predicate holds too.
void branch_where(Warp& warp, const Instruction& instruction) {
  warp.lanes &= lanes_holding(warp, instruction, 0);
  if (warp.lanes != 0) branch(warp, instruction);
}

// BRA.U.ANY: all that stand here go where one of them goes.
void branch_together(Warp& warp, const Instruction& instruction) {
  warp.lanes = warp.group->lanes;
  branch(warp, instruction);
}

// CALL, RET, BRX: each lane to the address in its register, plus a number.
void jump_by_register(Warp& warp, const Instruction& instruction) {
  part(warp);
  const u32* to = warp.in<u32>(instruction.slots[kOperands]);
  std::vector<std::pair<u32, u32>> ways;  // an instruction, and who goes there
  for_lanes(warp.lanes, [&](int lane) {
    const u32 address = to[lane] + static_cast<u32>(instruction.number);
    if (address % 16 != 0 || address / 16 >= warp.group->frame->function->code.size())
      fail(warp, instruction, "a jump to where there is no instruction");
    for (auto& [at, lanes] : ways)
      if (at == address / 16) {
        lanes |= 1U << lane;
        return;
      }
    ways.emplace_back(address / 16, 1U << lane);
  });
  if (ways.size() > 1) ++warp.counters->divergent_branches;
  Group group = *warp.group;
  warp.groups.erase(warp.groups.begin() + (warp.group - warp.groups.data()));
  for (const auto& [at, lanes] : ways) {
    group.at = at;
    group.lanes = lanes;
    warp.groups.push_back(group);
  }
  warp.group = nullptr;
  warp.leaves_row = true;
}

// BRA.DIV: where not all lanes stand here that a register names, the way that ptxas provides brings
// them together. They are awaited here instead, and that way is never taken.
void await_divergent(Warp& warp, const Instruction& instruction) {
  u32 named[kLanes];
  const u32 present = warp.group->lanes;
  const u32 wanted = *warp.in<u32>(instruction.slots[kOperands]);
  for (u32& each : named) each = wanted & ~present;
  gathered(warp, named);
}

void never(Warp& warp, const Instruction& instruction) {
  fail(warp, instruction, "a way of ptxas for lanes that stand apart, which is not known");
}

// ---- convergence -------------------------------------------------------------------------------

// BSSY: each lane remembers who has come here, until BSYNC.
void begin_sync(Warp& warp, const Instruction& instruction) {
  u32* together = warp.out<u32>(instruction.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) { together[lane] = warp.lanes; });
}

// BSYNC, WARPSYNC: until those are here whom each lane names.
void end_sync(Warp& warp, const Instruction& instruction) {
  part(warp);
  gathered(warp, warp.in<u32>(instruction.slots[kOperands]));
}

// BREAK: nobody waits for these lanes any more.
void leave_sync(Warp& warp, const Instruction& instruction) {
  u32* together = warp.out<u32>(instruction.slots[kResult]);
  const u32 leaving = warp.lanes & lanes_holding(warp, instruction, 0);
  for (int lane = 0; lane < kLanes; ++lane) together[lane] &= ~leaving;
  wake(warp);
}

// BMOV.CLEAR: keeps what a barrier names, which then names nobody.
void clear_sync(Warp& warp, const Instruction& instruction) {
  u32* together = warp.out<u32>(instruction.slots[kOperands]);
  u32* to = warp.out<u32>(instruction.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) { to[lane] = std::exchange(together[lane], 0); });
}

// ---- once for all lanes ------------------------------------------------------------------------

void once_for_all(Warp& warp, const Instruction& instruction) {
  warp.lanes = kAllLanes;
  instruction.once(warp, instruction);
}

void register_to_uniform(Warp& warp, const Instruction& instruction) {
  const u32* from = warp.in<u32>(instruction.slots[kOperands]);
  set_uniform(warp, instruction.slots[kResult], from[std::countr_zero(warp.lanes)]);
}

void reduce_or(Warp& warp, const Instruction& instruction) {
  const u32* from = warp.in<u32>(instruction.slots[kOperands]);
  u32 any = 0;
  for_lanes(warp.lanes, [&](int lane) { any |= from[lane]; });
  ++warp.counters->shuffles;
  set_uniform(warp, instruction.slots[kResult], any);
}

// VOTEU.ANY: who holds the predicate, and whether anybody does.
void vote_uniform(Warp& warp, const Instruction& instruction) {
  const u32 holding = lanes_holding(warp, instruction, 0) & warp.lanes;
  ++warp.counters->shuffles;
  if (instruction.slots[kResult] != kNoSlot) set_uniform(warp, instruction.slots[kResult], holding);
  if (instruction.slots[kWrites] != kNoSlot)
    *warp.out<u32>(instruction.slots[kWrites]) = holding != 0 ? kAllLanes : 0;
}

// VOTEU.ALL: whether all hold the predicate.
void vote_uniform_all(Warp& warp, const Instruction& instruction) {
  const u32 holding = lanes_holding(warp, instruction, 0) & warp.lanes;
  ++warp.counters->shuffles;
  *warp.out<u32>(instruction.slots[kWrites]) = holding == warp.lanes ? kAllLanes : 0;
}

// ---- among lanes -------------------------------------------------------------------------------

// One of them; which does not matter.
void elect(Warp& warp, const Instruction& instruction) {
  write_predicate(warp, instruction.slots[kWrites], warp.lanes & (0U - warp.lanes));
}

// VOTE.ANY: who holds the predicate, and whether anybody does.
void vote_any_here(Warp& warp, const Instruction& instruction) {
  const u32 holding = lanes_holding(warp, instruction, 0) & warp.lanes;
  ++warp.counters->shuffles;
  if (instruction.slots[kResult] != kNoSlot) {
    u32* to = warp.out<u32>(instruction.slots[kResult]);
    for_lanes(warp.lanes, [&](int lane) { to[lane] = holding; });
  }
  if (instruction.slots[kWrites] != kNoSlot)
    write_predicate(warp, instruction.slots[kWrites], holding != 0 ? warp.lanes : 0);
}

// Who holds the same number.
void match_any(Warp& warp, const Instruction& instruction) {
  const u32* from = warp.in<u32>(instruction.slots[kOperands]);
  u32 found[kLanes] = {};
  for_lanes(warp.lanes, [&](int lane) {
    for_lanes(warp.lanes,
              [&](int other) { found[lane] |= u32{from[lane] == from[other]} << other; });
  });
  ++warp.counters->shuffles;
  u32* to = warp.out<u32>(instruction.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) { to[lane] = found[lane]; });
}

// ---- predicates --------------------------------------------------------------------------------

void result_of_vote(Warp& warp, const Instruction& instruction) {
  u32* to = warp.out<u32>(instruction.slots[0]);
  *to = (*to & ~warp.lanes) | (*warp.in<u32>(instruction.slots[1]) & warp.lanes);
}

// P0 to P6 lie one behind the other; `number` names those that are meant.
void registers_to_predicates(Warp& warp, const Instruction& instruction) {
  const u32* from = warp.in<u32>(instruction.slots[kOperands]);
  for (u32 k = 0; k < 7; ++k) {
    if ((instruction.number >> k & 1) == 0) continue;
    u32 bits = 0;
    for_lanes(warp.lanes, [&](int lane) { bits |= (from[lane] >> k & 1) << lane; });
    write_predicate(warp, instruction.slots[kWrites] + k * static_cast<u32>(sizeof(u32)), bits);
  }
}

void predicates_to_register(Warp& warp, const Instruction& instruction) {
  const u32* others = warp.in<u32>(instruction.slots[kOperands]);
  const u32* predicates = warp.in<u32>(instruction.slots[kReads]);
  const auto mask = static_cast<u32>(instruction.number);
  u32* to = warp.out<u32>(instruction.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) {
    u32 bits = 0;
    for (u32 k = 0; k < 7; ++k) bits |= (predicates[k] >> lane & 1) << k;
    to[lane] = (others[lane] & ~mask) | (bits & mask);
  });
}

// Two results by the tables in `number`, of three predicates in slots 2 to 4.
void combine_predicates(Warp& warp, const Instruction& instruction) {
  u32 given[3];
  for (int k = 0; k < 3; ++k) {
    given[k] = *warp.in<u32>(instruction.slots[kOperands + k]);
    if ((instruction.changes[k] & kInverted) != 0) given[k] = ~given[k];
  }
  for (int which = 0; which < 2; ++which) {
    const auto table = static_cast<u32>(instruction.number >> (8 * which)) & 255;
    u32 found = 0;
    for (u32 k = 0; k < 8; ++k)
      if ((table >> k & 1) != 0)
        found |= ((k & 4) != 0 ? given[0] : ~given[0]) & ((k & 2) != 0 ? given[1] : ~given[1]) &
                 ((k & 1) != 0 ? given[2] : ~given[2]);
    write_predicate(warp, instruction.slots[kWrites + which], found);
  }
}

// ---- what a launch gives -----------------------------------------------------------------------

namespace {

// What is known of bank 0 before the parameters; nobody has documented it.
constexpr u32 kThreads = 0x0, kBlocks = 0xc, kLocal = 0x20, kStack = 0x28, kIsCluster = 0x140,
              kClusterBlocks = 0x188, kParameterAddress = 0x198, kDescriptor = 0x208;

template <class T>
void put(std::vector<std::byte>& bank, u32 at, T value) {
  std::memcpy(&bank[at], &value, sizeof value);
}

}  // namespace

void write_launch(std::vector<std::byte>& bank, const LaunchShape& shape) {
  put(bank, kThreads, static_cast<u32>(shape.threads));
  put(bank, kBlocks, static_cast<u32>(shape.blocks));
  put(bank, kLocal, kLocalWindow);
  put(bank, kStack, kLocalBytes);
  put(bank, kIsCluster, u32{shape.cluster > 1});
  put(bank, kClusterBlocks, static_cast<u32>(shape.cluster));
  put(bank, kParameterAddress, reinterpret_cast<std::uint64_t>(&bank[0]) + kParametersInBank);
  put(bank, kDescriptor, std::uint64_t{0});  // how to cache
}

bool is_known_constant(u32 offset, u32 bytes) {
  constexpr std::pair<u32, u32> kKnown[] = {
      {kThreads, 4},       {kBlocks, 4},           {kLocal, 8},     {kStack, 4}, {kIsCluster, 4},
      {kClusterBlocks, 4}, {kParameterAddress, 8}, {kDescriptor, 8}};
  for (const auto& [at, size] : kKnown)
    if (offset >= at && offset + bytes <= at + size) return true;
  return offset >= kParametersInBank;
}

// c[bank][register + number], of `bytes`; in slots 0 and 1. `count` is the bank.
void load_constant(Warp& warp, const Instruction& instruction) {
  const bool is_launch = instruction.count == 0;
  const std::vector<std::byte>& other = warp.group->frame->function->constant_bank;
  const std::byte* bank = is_launch ? warp.parameters - kParametersInBank : other.data();
  const std::size_t size =
      is_launch ? kParametersInBank + current.function->parameter_bytes : other.size();
  const u32* index = warp.in<u32>(instruction.slots[kOperands]);
  u32* low = warp.out<u32>(instruction.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) {
    const u32 at = index[lane] + static_cast<u32>(instruction.number);
    if (std::size_t{at} + instruction.bytes > size ||
        (is_launch && !is_known_constant(at, instruction.bytes)))
      fail(warp, instruction, "a constant that is not known, at " + std::to_string(at));
    u32 words[2] = {};
    std::memcpy(words, bank + at, instruction.bytes);
    low[lane] = words[0];
    if (instruction.bytes == 8) warp.out<u32>(instruction.slots[kResult + 1])[lane] = words[1];
  });
}

#define ISOBIT_SPECIAL(name, value)                                                      \
  if (word == (name))                                                                    \
    return [](Warp& warp, const Instruction& instruction) {                              \
      u32* to = warp.out<u32>(instruction.slots[kResult]);                               \
      for_lanes(warp.lanes,                                                              \
                [&]([[maybe_unused]] int lane) { to[lane] = static_cast<u32>(value); }); \
    };

Handler machine_register(std::string_view word) {
  ISOBIT_SPECIAL("SR_TID.X", warp.index * kLanes + lane)
  ISOBIT_SPECIAL("SR_CTAID.X", warp.block->index)
  ISOBIT_SPECIAL("SR_LANEID", lane)
  ISOBIT_SPECIAL("SR_CgaCtaId", warp.block->rank)
  ISOBIT_SPECIAL("SR_SWINHI", kSharedWindow >> 32)
  return nullptr;
}

#undef ISOBIT_SPECIAL

}  // namespace isobit::executor
