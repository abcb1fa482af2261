// SPDX-License-Identifier: Apache-2.0
// Branches, calls, barriers, and what lanes of a warp tell each other.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "isobit/executor/warp.h"

namespace isobit::executor {
namespace {

void leave(Warp& warp) {
  warp.group = nullptr;
  warp.leaves_row = true;
}

void require_all(Warp& warp, const Instruction& instruction, const char* what) {
  if (warp.lanes != warp.group->lanes) fail(warp, instruction, what);
}

void release_block(Block& block) {
  if (block.arrived == 0 || block.arrived < block.live) return;
  block.vote = {block.any, block.every, block.holding};
  block.any = false;
  block.every = true;
  block.holding = block.arrived = 0;
  for (const auto& warp : block.warps)
    for (Group& group : warp->groups)
      if (group.state == State::at_block_barrier) group.state = State::runs;
}

void release_cluster(Cluster& cluster) {
  if (cluster.arrived == 0 || cluster.arrived < cluster.live) return;
  cluster.arrived = 0;
  ++cluster.phase;
  for (const auto& block : cluster.blocks)
    for (const auto& warp : block->warps)
      for (Group& group : warp->groups)
        if (group.state == State::at_cluster_barrier) group.state = State::runs;
}

void end_lanes(Warp& warp, const Instruction& instruction) {
  Block& block = *warp.block;
  const int ended = std::popcount(warp.group->lanes);
  for_lanes(warp.group->lanes, [&](int lane) {
    for (const Warp::Copy& copy : warp.copies)
      if (copy.lane == lane)
        fail(warp, instruction, "the thread ends while its copies are under way");
  });
  if (warp.products.sums != nullptr)
    fail(warp, instruction, "the thread ends while its products are under way");
  warp.live &= ~warp.group->lanes;
  block.live -= ended;
  block.cluster->live -= ended;
  if (block.live == 0 && !block.bulk.empty())
    fail(warp, instruction, "the block ends while bulk copies are under way");
  warp.groups.erase(warp.groups.begin() + (warp.group - warp.groups.data()));
  for (Group& group : warp.groups)  // those that wait for these lanes wait in vain
    if (group.state == State::awaits_lanes) group.state = State::runs;
  leave(warp);
  release_block(block);
  release_cluster(*block.cluster);
}

void give_back(Warp& warp, Frame* frame) {
  const auto found = std::ranges::find(warp.frames, frame, &std::unique_ptr<Frame>::get);
  warp.spare_frames.push_back(std::move(*found));
  warp.frames.erase(found);
}

void copy_variables(Warp& warp, const std::vector<Variable>& to, std::uint32_t to_frame,
                    const std::vector<Variable>& from, std::uint32_t from_frame) {
  for (std::size_t i = 0; i < from.size(); ++i)
    for_lanes(warp.group->lanes, [&](int lane) {
      std::byte* local = warp.local_of(lane);
      std::memcpy(local + to_frame + to[i].offset, local + from_frame + from[i].offset,
                  std::min(to[i].bytes, from[i].bytes));
    });
}

// Whether all lanes that each lane names are here; else the group comes again.
bool all_here(Warp& warp, const Instruction& instruction, const std::uint32_t* named) {
  for (std::uint32_t rest = warp.lanes; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    if ((named[lane] >> lane & 1) == 0)
      fail(warp, instruction, "lane " + std::to_string(lane) + " does not name itself");
    const std::uint32_t absent = named[lane] & warp.all & ~warp.lanes;
    if ((absent & ~warp.live) != 0) fail(warp, instruction, "it names lanes that have ended");
    if (absent != 0) {
      repeat_later(warp, State::awaits_lanes);
      return false;
    }
  }
  return true;
}

template <bool kXor>
void shuffle(Warp& warp, const Instruction& instruction, const std::uint32_t* named) {
  const std::uint32_t* value = warp.in<std::uint32_t>(instruction.slots[1]);
  const std::uint32_t* index = warp.in<std::uint32_t>(instruction.slots[2]);
  const std::uint32_t* clamp = warp.in<std::uint32_t>(instruction.slots[3]);
  std::uint32_t found[kLanes];
  std::uint32_t in_range = 0;
  for_lanes(warp.lanes, [&](int lane) {
    const auto self = static_cast<std::uint32_t>(lane);
    const std::uint32_t segment = clamp[lane] >> 8 & 31;
    const std::uint32_t last = (self & segment) | (clamp[lane] & 31 & ~segment);
    const std::uint32_t by = index[lane] & 31;
    std::uint32_t from = kXor ? self ^ by : (self & segment) | (by & ~segment);
    if (from <= last)
      in_range |= 1U << lane;
    else
      from = self;
    if ((warp.lanes >> from & 1) == 0 || (named[lane] >> from & 1) == 0)
      fail(warp, instruction,
           "lane " + std::to_string(lane) + " reads lane " + std::to_string(from) +
               ", which does not take part");
    found[lane] = value[from];
  });
  ++warp.counters->shuffles;
  std::uint32_t* to = warp.out<std::uint32_t>(instruction.slots[0]);
  for_lanes(warp.lanes, [&](int lane) { to[lane] = found[lane]; });
  if (instruction.slots[5] == kNoSlot) return;
  std::uint32_t* predicate = warp.out<std::uint32_t>(instruction.slots[5]);
  *predicate = (*predicate & ~warp.lanes) | in_range;
}

// d, p, lanes: of the lanes that take part, those that hold the predicate.
template <class Write>
void vote(Warp& warp, const Instruction& instruction, const Write& write) {
  const std::uint32_t* named = warp.in<std::uint32_t>(instruction.slots[2]);
  if (!all_here(warp, instruction, named)) return;
  const std::uint32_t holding = *warp.in<std::uint32_t>(instruction.slots[1]);
  for_lanes(warp.lanes, [&](int lane) { write(lane, holding & named[lane], named[lane]); });
}

// Among the lanes that the instruction names.
template <bool kXor>
void shuffle_named(Warp& warp, const Instruction& instruction) {
  const std::uint32_t* named = warp.in<std::uint32_t>(instruction.slots[4]);
  if (all_here(warp, instruction, named)) shuffle<kXor>(warp, instruction, named);
}

// Among those that execute it: machine code has brought them together.
template <bool kXor>
void shuffle_here(Warp& warp, const Instruction& instruction) {
  std::uint32_t named[kLanes];
  std::fill_n(named, kLanes, warp.lanes);
  shuffle<kXor>(warp, instruction, named);
}

void set_bit(Warp& warp, Slot slot, int lane, bool value) {
  std::uint32_t& word = *warp.out<std::uint32_t>(slot);
  word = (word & ~(1U << lane)) | std::uint32_t{value} << lane;
}

}  // namespace

void suspend(Warp& warp, State state) {
  warp.group->at = warp.next;
  warp.group->state = state;
  leave(warp);
}

void repeat_later(Warp& warp, State state) {
  --warp.next;
  suspend(warp, state);
}

Frame* new_frame(Warp& warp, const Function& function) {
  std::unique_ptr<Frame> frame;
  const auto spare = std::ranges::find_if(warp.spare_frames, [&](const auto& each) {
    return each->registers.size() >= function.register_bytes;
  });
  if (spare != warp.spare_frames.end()) {
    frame = std::move(*spare);
    warp.spare_frames.erase(spare);
  } else {
    frame = std::make_unique<Frame>();
    frame->registers.assign(function.register_bytes, std::byte{0xcd});
  }
  frame->function = &function;
  warp.frames.push_back(std::move(frame));
  return warp.frames.back().get();
}

void branch(Warp& warp, const Instruction& instruction) {
  Group& group = *warp.group;
  warp.leaves_row = true;
  if (warp.lanes == group.lanes) {
    warp.next = instruction.target;
    return;
  }
  ++warp.counters->divergent_branches;
  const Group taken{.at = instruction.target, .lanes = warp.lanes, .frame = group.frame};
  group.lanes &= ~warp.lanes;
  group.at = warp.next;
  warp.groups.push_back(taken);
  leave(warp);
}

void part(Warp& warp) {
  if (warp.lanes == warp.group->lanes) return;
  Group rest = *warp.group;
  rest.lanes &= ~warp.lanes;
  rest.at = warp.next;
  warp.group->lanes = warp.lanes;
  const auto index = warp.group - warp.groups.data();
  warp.groups.push_back(rest);
  warp.group = &warp.groups[static_cast<std::size_t>(index)];
  warp.leaves_row = true;
}

bool gathered(Warp& warp, const std::uint32_t* named) {
  std::uint32_t absent = 0;
  for_lanes(warp.lanes, [&](int lane) { absent |= named[lane] & warp.live & ~warp.lanes; });
  if (absent != 0) repeat_later(warp, State::awaits_lanes);
  return absent == 0;
}

void return_from(Warp& warp, const Instruction& instruction) {
  part(warp);  // some return, the others go on
  Group& group = *warp.group;
  Frame* frame = group.frame;
  if (frame->depth == 0) return end_lanes(warp, instruction);
  copy_variables(warp, frame->call->results, frame->caller->local, frame->function->results,
                 frame->local);
  group.frame = frame->caller;
  group.at = frame->return_to;
  frame->lanes &= ~group.lanes;
  if (frame->lanes == 0) give_back(warp, frame);
  leave(warp);
}

void call_function(Warp& warp, const Instruction& instruction) {
  require_all(warp, instruction, "some lanes call, and others do not");
  Group& group = *warp.group;
  const Function& callee = *instruction.call->callee;
  Frame* frame = new_frame(warp, callee);
  frame->caller = group.frame;
  frame->call = instruction.call;
  frame->return_to = warp.next;
  frame->lanes = group.lanes;
  frame->depth = group.frame->depth + 1;
  frame->local = group.frame->local + group.frame->function->local_bytes;
  if (frame->local + callee.local_bytes > kLocalBytes)
    fail(warp, instruction, "a lane's local memory is used up");
  copy_variables(warp, callee.parameters, frame->local, instruction.call->arguments,
                 group.frame->local);
  group.frame = frame;
  group.at = 0;
  leave(warp);
}

void trap(Warp& warp, const Instruction& instruction) { fail(warp, instruction, "trap"); }

void nothing(Warp&, const Instruction&) {}

void sync_block(Warp& warp, const Instruction& instruction) {
  require_all(warp, instruction, "some lanes of a group come to a barrier, and others do not");
  ++warp.counters->barriers;
  Block& block = *warp.block;
  block.arrived += std::popcount(warp.lanes);
  suspend(warp, State::at_block_barrier);
  release_block(block);
}

// p, barrier, q: like sync_block; `number` is 0 for or, 1 for and, 2 for a count. The group comes
// twice: to arrive, and to read what was found.
void vote_in_block(Warp& warp, const Instruction& instruction) {
  require_all(warp, instruction, "some lanes of a group come to a barrier, and others do not");
  Block& block = *warp.block;
  Group& group = *warp.group;
  if (group.phase == 0) {
    ++warp.counters->barriers;
    const std::uint32_t holding = *warp.in<std::uint32_t>(instruction.slots[1]) & warp.lanes;
    block.any |= holding != 0;
    block.every &= holding == warp.lanes;
    block.holding += std::popcount(holding);
    block.arrived += std::popcount(warp.lanes);
    group.phase = 1;
    repeat_later(warp, State::at_block_barrier);
    release_block(block);
    return;
  }
  group.phase = 0;
  if (instruction.number == 2) {
    std::uint32_t* to = warp.out<std::uint32_t>(instruction.slots[0]);
    for_lanes(warp.lanes,
              [&](int lane) { to[lane] = static_cast<std::uint32_t>(block.vote.count); });
    return;
  }
  const bool found = instruction.number == 0 ? block.vote.any : block.vote.every;
  for_lanes(warp.lanes, [&](int lane) { set_bit(warp, instruction.slots[0], lane, found); });
}

void sync_warp(Warp& warp, const Instruction& instruction) {
  all_here(warp, instruction, warp.in<std::uint32_t>(instruction.slots[0]));
}

void arrive_cluster(Warp& warp, const Instruction&) {
  Cluster& cluster = *warp.block->cluster;
  warp.group->phase = cluster.phase;
  cluster.arrived += std::popcount(warp.lanes);
  ++warp.counters->barriers;
  release_cluster(cluster);
}

void wait_cluster(Warp& warp, const Instruction&) {
  if (warp.block->cluster->phase == warp.group->phase)
    return repeat_later(warp, State::at_cluster_barrier);
  warp.group->phase = 0;
}

void shuffle_xor(Warp& warp, const Instruction& instruction) {
  shuffle_named<true>(warp, instruction);
}
void shuffle_index(Warp& warp, const Instruction& instruction) {
  shuffle_named<false>(warp, instruction);
}
void shuffle_xor_here(Warp& warp, const Instruction& instruction) {
  shuffle_here<true>(warp, instruction);
}
void shuffle_index_here(Warp& warp, const Instruction& instruction) {
  shuffle_here<false>(warp, instruction);
}

void vote_ballot(Warp& warp, const Instruction& instruction) {
  vote(warp, instruction, [&](int lane, std::uint32_t holding, std::uint32_t) {
    warp.out<std::uint32_t>(instruction.slots[0])[lane] = holding;
  });
}
void vote_any(Warp& warp, const Instruction& instruction) {
  vote(warp, instruction, [&](int lane, std::uint32_t holding, std::uint32_t) {
    set_bit(warp, instruction.slots[0], lane, holding != 0);
  });
}
std::optional<Reduction> reduction_named(std::string_view opcode) {
  static constexpr std::pair<std::string_view, Reduction> kNames[] = {
      {"redux.sync.add.s32", Reduction::add},        {"redux.sync.add.u32", Reduction::add},
      {"redux.sync.min.s32", Reduction::min_signed}, {"redux.sync.max.s32", Reduction::max_signed},
      {"redux.sync.min.u32", Reduction::min},        {"redux.sync.max.u32", Reduction::max},
      {"redux.sync.and.b32", Reduction::all},        {"redux.sync.or.b32", Reduction::any},
      {"redux.sync.xor.b32", Reduction::odd}};
  for (const auto& [name, reduction] : kNames)
    if (name == opcode) return reduction;
  return std::nullopt;
}

// d, a, lanes.
void reduce_lanes(Warp& warp, const Instruction& instruction) {
  const std::uint32_t* named = warp.in<std::uint32_t>(instruction.slots[2]);
  if (!all_here(warp, instruction, named)) return;
  const std::uint32_t* value = warp.in<std::uint32_t>(instruction.slots[1]);
  const auto both = [&](std::uint32_t a, std::uint32_t b) {
    const auto signed_a = static_cast<std::int32_t>(a), signed_b = static_cast<std::int32_t>(b);
    switch (static_cast<Reduction>(instruction.number)) {
      case Reduction::add:        return a + b;
      case Reduction::min_signed: return signed_a < signed_b ? a : b;
      case Reduction::max_signed: return signed_a > signed_b ? a : b;
      case Reduction::min:        return std::min(a, b);
      case Reduction::max:        return std::max(a, b);
      case Reduction::all:        return a & b;
      case Reduction::any:        return a | b;
      case Reduction::odd:        return a ^ b;
    }
    return a;
  };
  std::uint32_t found[kLanes];
  for_lanes(warp.lanes, [&](int lane) {
    found[lane] = value[lane];
    for_lanes(named[lane] & warp.lanes & ~(1U << lane),
              [&](int other) { found[lane] = both(found[lane], value[other]); });
  });
  ++warp.counters->shuffles;
  std::uint32_t* to = warp.out<std::uint32_t>(instruction.slots[0]);
  for_lanes(warp.lanes, [&](int lane) { to[lane] = found[lane]; });
}

void vote_all(Warp& warp, const Instruction& instruction) {
  vote(warp, instruction, [&](int lane, std::uint32_t holding, std::uint32_t named) {
    set_bit(warp, instruction.slots[0], lane, (named & warp.lanes & ~holding) == 0);
  });
}

}  // namespace isobit::executor
