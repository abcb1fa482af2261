// SPDX-License-Identifier: Apache-2.0
// Copies to shared memory that threads go on beside: cp.async by groups, bulk copies by mbarriers.
#include <algorithm>
#include <cstring>

#include "isobit/executor/memory.h"
#include "isobit/executor/tensor_map.h"
#include "isobit/executor/warp.h"

namespace isobit::executor {
namespace {

constexpr int kPoison = 0xff;

// What a copy beside the threads takes from global memory.
void require_global(const Warp& warp, const Instruction& instruction, std::uintptr_t from,
                    std::uint32_t bytes) {
  if (bytes == 0) return;
  Allocation* found = memory().find(from);
  if (found == nullptr || !found->holds(from, bytes))
    fail(warp, instruction, "a copy from an illegal address");
  if (!warp.counters->in_full) return;
  Traffic& loads = warp.counters->loads;
  for (std::uintptr_t s = from / kSector; s <= (from + bytes - 1) / kSector; ++s)
    loads.distinct += found->first_load(s);
}

std::byte* shared_room(const Warp& warp, const Instruction& instruction, std::uint32_t to,
                       std::uint32_t bytes) {
  if (std::uint64_t{to} + bytes > static_cast<std::uint64_t>(current.shape.shared_bytes))
    fail(warp, instruction, "a copy beyond shared memory");
  return warp.block->shared + to;
}

void land_copy(Warp& warp, const Warp::Copy& copy) {
  std::byte* to = warp.block->shared + copy.to;
  std::memcpy(to, reinterpret_cast<const std::byte*>(copy.from), copy.given);
  std::memset(to + copy.given, 0, copy.bytes - copy.given);
}

void advance(Arrival& arrival) {
  if (arrival.pending != 0 || arrival.bytes != 0) return;
  ++arrival.phase;
  arrival.pending = arrival.expected;
}

Arrival& arrival_at(Warp& warp, const Instruction& instruction, std::uint32_t at) {
  const auto found = warp.block->arrivals.find(at);
  if (found == warp.block->arrivals.end())
    fail(warp, instruction, "there is no arrival barrier here");
  return found->second;
}

void land_one(Block& block, std::deque<BulkCopy>::iterator copy) {
  for (const BulkCopy::Piece& piece : copy->pieces) {
    std::memset(piece.to, 0, piece.bytes);
    std::memcpy(piece.to, piece.from, piece.given);
  }
  Arrival& arrival = block.arrivals[copy->arrival];
  arrival.bytes -= copy->bytes;
  advance(arrival);
}

}  // namespace

// [to], [from], bytes, given: what is not given becomes zeros.
void copy_async(Warp& warp, const Instruction& instruction) {
  const std::uint32_t bytes = instruction.bytes;
  for_lanes(warp.lanes, [&](int lane) {
    const std::uint32_t to = warp.in<std::uint32_t>(instruction.slots[0])[lane];
    const std::uintptr_t from = warp.in<std::uintptr_t>(instruction.slots[1])[lane];
    const std::uint32_t given = instruction.slots[2] == kNoSlot
                                    ? bytes
                                    : warp.in<std::uint32_t>(instruction.slots[2])[lane];
    if (to % bytes != 0 || from % bytes != 0) fail(warp, instruction, "a misaligned copy");
    if (given > bytes) fail(warp, instruction, "a copy of more bytes than it has");
    std::byte* room = shared_room(warp, instruction, to, bytes);
    require_global(warp, instruction, from, given);
    ++warp.counters->copies;
    warp.counters->copied_bytes += given;
    const Warp::Copy copy{lane, warp.committed[lane], to, from, bytes, given};
    if (current.copies_land_early) {
      land_copy(warp, copy);
    } else {
      std::memset(room, kPoison, bytes);
      warp.copies.push_back(copy);
    }
  });
}

void commit_copies(Warp& warp, const Instruction&) {
  for_lanes(warp.lanes, [&](int lane) { ++warp.committed[lane]; });
}

// Until at most `number` groups are under way.
void wait_copies(Warp& warp, const Instruction& instruction) {
  std::erase_if(warp.copies, [&](const Warp::Copy& copy) {
    if ((warp.lanes >> copy.lane & 1) == 0) return false;
    const std::uint64_t later = warp.committed[copy.lane];
    const bool lands =
        copy.group < later && later - copy.group > static_cast<std::uint64_t>(instruction.number);
    if (lands) land_copy(warp, copy);
    return lands;
  });
}

namespace {

// A copy that takes up so many bytes from `room` on.
void begin_pieces(Warp& warp, const Instruction& instruction, std::byte* room, BulkCopy copy) {
  arrival_at(warp, instruction, copy.arrival);
  ++warp.counters->copies;
  for (const BulkCopy::Piece& piece : copy.pieces) warp.counters->copied_bytes += piece.given;
  std::memset(room, kPoison, copy.bytes);
  warp.block->bulk.push_back(std::move(copy));
  if (current.copies_land_early) land_all(*warp.block);
}

void begin_bulk(Warp& warp, const Instruction& instruction, std::uint32_t to, std::uintptr_t from,
                std::uint32_t bytes, std::uint32_t arrival) {
  if (to % 16 != 0 || from % 16 != 0 || bytes % 16 != 0 || bytes == 0)
    fail(warp, instruction, "a bulk copy whose ends are not at 16 bytes");
  std::byte* room = shared_room(warp, instruction, to, bytes);
  require_global(warp, instruction, from, bytes);
  begin_pieces(warp, instruction, room,
               {{{room, reinterpret_cast<const std::byte*>(from), bytes, bytes}}, bytes, arrival});
}

void begin_arrival(Warp& warp, const Instruction& instruction, std::uint32_t at,
                   std::uint32_t count) {
  shared_room(warp, instruction, at, 8);
  if (at % 8 != 0) fail(warp, instruction, "a misaligned arrival barrier");
  warp.block->arrivals[at] = {.expected = count, .pending = count};
}

void arrive_expecting(Warp& warp, const Instruction& instruction, std::uint32_t at,
                      std::uint32_t bytes) {
  Arrival& arrival = arrival_at(warp, instruction, at);
  if (arrival.pending == 0) fail(warp, instruction, "more arrivals than the barrier expects");
  arrival.bytes += bytes;
  --arrival.pending;
  advance(arrival);
}

// What is on its way to the block as it waits for what an arrival barrier counts.
void count_awaited(Warp& warp, std::uint32_t arrival) {
  const std::deque<BulkCopy>& bulk = warp.block->bulk;
  if (std::ranges::none_of(bulk, [&](const BulkCopy& c) { return c.arrival == arrival; })) return;
  ++warp.counters->bulk_waits;
  for (const BulkCopy& copy : bulk) warp.counters->awaited_bulk_bytes += copy.bytes;
}

// Whether the phase of that parity is complete, with all copies that may land.
bool is_complete(Warp& warp, const Instruction& instruction, std::uint32_t at,
                 std::uint32_t parity) {
  const Arrival& arrival = arrival_at(warp, instruction, at);
  if ((arrival.phase & 1) == parity) {
    count_awaited(warp, at);
    land(*warp.block, at);
  }
  return (arrival.phase & 1) != parity;
}

std::uint32_t own_address(const Warp& warp, const Instruction& instruction, int lane) {
  return own_shared(warp, instruction, machine_address(warp, instruction, lane));
}

}  // namespace

// [to], [from], bytes, [arrival]
void copy_bulk(Warp& warp, const Instruction& instruction) {
  for_lanes(warp.lanes, [&](int lane) {
    begin_bulk(warp, instruction, warp.in<std::uint32_t>(instruction.slots[0])[lane],
               warp.in<std::uintptr_t>(instruction.slots[1])[lane],
               warp.in<std::uint32_t>(instruction.slots[2])[lane],
               warp.in<std::uint32_t>(instruction.slots[3])[lane]);
  });
}

namespace {

// The map that an address names: the launch's parameters hold it.
TensorMap map_at(const Warp& warp, const Instruction& instruction, std::uint64_t at) {
  const auto begin = reinterpret_cast<std::uintptr_t>(warp.parameters);
  TensorMap map;
  if (at < begin || at + sizeof map > begin + current.function->parameter_bytes)
    fail(warp, instruction, "a tensor map that is not among the kernel's parameters");
  std::memcpy(&map, reinterpret_cast<const std::byte*>(at), sizeof map);
  if (map.mark != TensorMap::kMark) fail(warp, instruction, "this is no tensor map");
  return map;
}

// Its lines stand below each other in shared memory, with zeros for what is beyond the tensor.
void begin_box(Warp& warp, const Instruction& instruction, std::uint32_t to, const TensorMap& map,
               const std::int64_t (&first)[3], std::uint32_t arrival) {
  constexpr std::uint32_t kLine = 128, kPiece = 16, kElement = 2;
  if (map.box[0] * kElement != kLine || map.box[2] != 1)
    fail(warp, instruction, "a box that is not of lines of 128 bytes");
  if (to % (8 * kLine) != 0) fail(warp, instruction, "a box that is not aligned to 1024 bytes");
  BulkCopy copy{{}, map.box[1] * kLine, arrival};
  std::byte* const room = shared_room(warp, instruction, to, copy.bytes);
  const auto is_in = [&](std::int64_t at, int dimension) {
    return at >= 0 && at < static_cast<std::int64_t>(map.extents[dimension]);
  };
  for (std::uint32_t line = 0; line < map.box[1]; ++line) {
    const std::int64_t at_line = first[1] + line;
    const bool there = is_in(first[2], 2) && is_in(at_line, 1) && is_in(first[0], 0);
    const std::uintptr_t from = there ? map.address +
                                            static_cast<std::uintptr_t>(first[0]) * kElement +
                                            static_cast<std::uintptr_t>(at_line) * map.strides[0] +
                                            static_cast<std::uintptr_t>(first[2]) * map.strides[1]
                                      : map.address;
    const std::uint64_t left =
        there ? (map.extents[0] - static_cast<std::uint64_t>(first[0])) * kElement : 0;
    const auto given = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, kLine));
    require_global(warp, instruction, from, given);
    for (std::uint32_t piece = 0; piece * kPiece < kLine; ++piece) {
      const std::uint32_t before = std::min(given, piece * kPiece);
      copy.pieces.push_back({room + line * kLine + (piece ^ line % 8) * kPiece,
                             reinterpret_cast<const std::byte*>(from) + before, kPiece,
                             std::min(given - before, kPiece)});
    }
  }
  begin_pieces(warp, instruction, room, std::move(copy));
}

}  // namespace

// [to], [map, {element, line, matrix}], [arrival]
void copy_box(Warp& warp, const Instruction& instruction) {
  for_lanes(warp.lanes, [&](int lane) {
    const auto at = [&](int slot) {
      return std::int64_t{warp.in<std::int32_t>(instruction.slots[slot])[lane]};
    };
    begin_box(warp, instruction, warp.in<std::uint32_t>(instruction.slots[0])[lane],
              map_at(warp, instruction, warp.in<std::uint64_t>(instruction.slots[1])[lane]),
              {at(2), at(3), at(4)}, warp.in<std::uint32_t>(instruction.slots[5])[lane]);
  });
}

// [at]
void arrive(Warp& warp, const Instruction& instruction) {
  for_lanes(warp.lanes, [&](int lane) {
    arrive_expecting(warp, instruction, warp.in<std::uint32_t>(instruction.slots[0])[lane], 0);
  });
}

// [at], count
void init_arrival(Warp& warp, const Instruction& instruction) {
  for_lanes(warp.lanes, [&](int lane) {
    begin_arrival(warp, instruction, warp.in<std::uint32_t>(instruction.slots[0])[lane],
                  warp.in<std::uint32_t>(instruction.slots[1])[lane]);
  });
}

// [at], bytes: arrives, and expects so many more
void expect_bytes(Warp& warp, const Instruction& instruction) {
  for_lanes(warp.lanes, [&](int lane) {
    arrive_expecting(warp, instruction, warp.in<std::uint32_t>(instruction.slots[0])[lane],
                     warp.in<std::uint32_t>(instruction.slots[1])[lane]);
  });
}

// p, [at], parity: it comes again until the phase of that parity is complete.
void wait_arrival(Warp& warp, const Instruction& instruction) {
  const std::uint32_t* at = warp.in<std::uint32_t>(instruction.slots[1]);
  const std::uint32_t* parity = warp.in<std::uint32_t>(instruction.slots[2]);
  bool waits = false;
  for_lanes(warp.lanes, [&](int lane) {
    waits |= !is_complete(warp, instruction, at[lane], parity[lane] & 1);
  });
  if (waits) return repeat_later(warp, State::awaits_copies);
  *warp.out<std::uint32_t>(instruction.slots[0]) |= warp.lanes;
}

// ---- the same in machine code: an address as an access has it, other operands from slot 0 on ----

// SYNCS.EXCH: once for all lanes, the two words that make an arrival barrier: how many arrivals are
// missing, from 2^20 downwards, in the lower one at bit 1 and in the upper one at bit 11.
void exchange_arrival(Warp& warp, const Instruction& instruction) {
  constexpr std::uint32_t kMost = 1 << 20;
  const int lane = std::countr_zero(warp.lanes);
  const std::uint32_t low = warp.in<std::uint32_t>(instruction.slots[0])[lane];
  const std::uint32_t high = warp.in<std::uint32_t>(instruction.slots[1])[lane];
  const std::uint32_t count = kMost - low / 2;
  if (low % 2 != 0 || count == 0 || count >= kMost || high != (kMost - count) << 11)
    fail(warp, instruction, "two words that make no arrival barrier");
  begin_arrival(warp, instruction, own_address(warp, instruction, lane), count);
}

// SYNCS.ARRIVE.TRANS64: arrives, and expects as many bytes more as a register holds.
void expect_machine_bytes(Warp& warp, const Instruction& instruction) {
  for_lanes(warp.lanes, [&](int lane) {
    arrive_expecting(warp, instruction, own_address(warp, instruction, lane),
                     warp.in<std::uint32_t>(instruction.slots[0])[lane]);
  });
}

// SYNCS.PHASECHK: the parity is the uppermost bit of a register.
void check_phase(Warp& warp, const Instruction& instruction) {
  const std::uint32_t* parity = warp.in<std::uint32_t>(instruction.slots[1]);
  bool waits = false;
  for_lanes(warp.lanes, [&](int lane) {
    if (parity[lane] << 1 != 0) fail(warp, instruction, "a parity of more than one bit");
    waits |=
        !is_complete(warp, instruction, own_address(warp, instruction, lane), parity[lane] >> 31);
  });
  if (waits) return repeat_later(warp, State::awaits_copies);
  if (instruction.slots[0] != kNoSlot) *warp.out<std::uint32_t>(instruction.slots[0]) |= warp.lanes;
}

// UBLKCP: once for all lanes. Slots 0 and 1: to where, and the arrival barrier; 2 and 3: from
// where; 4: how many times 16 bytes.
void copy_bulk_once(Warp& warp, const Instruction& instruction) {
  const int lane = std::countr_zero(warp.lanes);
  const auto word = [&](int slot) { return warp.in<std::uint32_t>(instruction.slots[slot])[lane]; };
  if (word(4) >> 16 != 0) fail(warp, instruction, "a bulk copy of an unknown kind");
  begin_bulk(warp, instruction, own_shared(warp, instruction, word(0)),
             word(2) | std::uintptr_t{word(3)} << 32, word(4) * 16,
             own_shared(warp, instruction, word(1)));
}

void land(Block& block, std::uint32_t arrival) {
  for (auto copy = block.bulk.begin(); copy != block.bulk.end();) {
    if (copy->arrival != arrival) {
      ++copy;
      continue;
    }
    land_one(block, copy);
    copy = block.bulk.erase(copy);
  }
}

void land_all(Block& block) {
  for (auto copy = block.bulk.begin(); copy != block.bulk.end(); ++copy) land_one(block, copy);
  block.bulk.clear();
}

}  // namespace isobit::executor
