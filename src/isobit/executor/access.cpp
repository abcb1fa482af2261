// SPDX-License-Identifier: Apache-2.0
// Accesses to memory, each lane's checked, each request counted.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "isobit/executor/memory.h"
#include "isobit/executor/warp.h"

namespace isobit::executor {
namespace {

constexpr int kBanks = 32;

// The wavefronts of a request to shared memory: in each, a bank gives one word of 4 bytes. Requests
// of 8 and 16 bytes a lane go by halves and quarters of a warp.
void count_banks(Counters& counters, const std::uint32_t* at, std::uint32_t lanes, int bytes) {
  ++counters.shared_requests;
  const int together = bytes == 16 ? 8 : bytes == 8 ? 16 : kLanes;
  for (int first = 0; first < kLanes; first += together) {
    std::uint32_t words[kLanes * 2];
    int count = 0;
    for (int lane = first; lane < first + together; ++lane)
      if ((lanes >> lane & 1) != 0)
        for (int word = 0; word < std::max(1, bytes / 4); ++word)
          words[count++] = at[lane] / 4 + static_cast<std::uint32_t>(word);
    if (count == 0) continue;
    std::sort(words, words + count);
    int in_bank[kBanks] = {};
    int most = 0, distinct = 0;
    for (int i = 0; i < count; ++i) {
      if (i > 0 && words[i] == words[i - 1]) continue;
      ++distinct;
      most = std::max(most, ++in_bank[words[i] % kBanks]);
    }
    counters.shared_wavefronts += static_cast<std::uint64_t>(most);
    counters.shared_least += static_cast<std::uint64_t>((distinct + kBanks - 1) / kBanks);
  }
}

void count_sectors(Traffic& traffic, bool loads, const std::uintptr_t* at, std::uint32_t lanes,
                   std::uintptr_t bytes, Allocation* allocation) {
  std::uintptr_t sectors[2 * kLanes];
  int count = 0;
  bool sorted = true;
  for_lanes(lanes, [&](int lane) {
    for (std::uintptr_t s = at[lane] / kSector; s <= (at[lane] + bytes - 1) / kSector; ++s) {
      if (count > 0 && sectors[count - 1] == s) continue;
      sorted &= count == 0 || sectors[count - 1] < s;
      sectors[count++] = s;
    }
  });
  if (!sorted) {
    std::sort(sectors, sectors + count);
    count = static_cast<int>(std::unique(sectors, sectors + count) - sectors);
  }
  const std::uint64_t wanted = static_cast<std::uint64_t>(std::popcount(lanes)) * bytes;
  ++traffic.requests;
  traffic.sectors += static_cast<std::uint64_t>(count);
  traffic.least += (wanted + kSector - 1) / kSector;
  traffic.bytes += wanted;
  traffic.wide += bytes == 16;
  for (int i = 0; i < count; ++i) {
    // Lanes may reach into several arrays.
    if (!allocation->holds(sectors[i] * kSector, 1))
      allocation = memory().find(sectors[i] * kSector);
    traffic.distinct +=
        loads ? allocation->first_load(sectors[i]) : allocation->first_store(sectors[i]);
  }
}

// Where each lane's element lies, and in which memory.
struct Places {
  std::byte* at[kLanes];
  std::uintptr_t global[kLanes];
  std::uint32_t shared[kLanes];
  std::uint32_t globals = 0, shareds = 0;  // lanes
  Allocation* allocation = nullptr;        // of the last lane in global memory
};

class Finder {
 public:
  Finder(Warp& warp, const Instruction& instruction, bool loads)
      : warp_(warp),
        instruction_(instruction),
        loads_(loads),
        bytes_(std::uint32_t{instruction.bytes} * instruction.count) {}

  Places find() {
    for_lanes(warp_.lanes, [&](int lane) { places_.at[lane] = place(lane); });
    return places_;
  }

 private:
  std::byte* place(int lane) {
    switch (instruction_.base) {
      case Base::parameters: return const_cast<std::byte*>(warp_.parameters) + instruction_.number;
      case Base::own_local:
        return warp_.local_of(lane) + warp_.group->frame->local + instruction_.number;
      case Base::none: return by_address(lane, static_cast<std::uintptr_t>(instruction_.number));
      case Base::reg32:
        return by_address(
            lane, static_cast<std::uintptr_t>(warp_.in<std::uint32_t>(instruction_.slots[4])[lane] +
                                              instruction_.number));
      case Base::reg64:
        return by_address(lane, warp_.in<std::uintptr_t>(instruction_.slots[4])[lane] +
                                    static_cast<std::uintptr_t>(instruction_.number));
      case Base::machine: return by_machine_address(lane);
    }
    return nullptr;
  }

  // Machine code counts local and shared memory from 0, or has them in a window of all addresses.
  std::byte* by_machine_address(int lane) {
    std::uintptr_t at = machine_address(warp_, instruction_, lane);
    if (instruction_.slots[5] != kNoSlot) {
      const std::uintptr_t low = warp_.in<std::uint32_t>(instruction_.slots[4])[lane];
      const std::uintptr_t high = warp_.in<std::uint32_t>(instruction_.slots[5])[lane];
      at = (low | high << 32) + warp_.in<std::uint32_t>(instruction_.slots[6])[lane] +
           static_cast<std::uintptr_t>(instruction_.number);
    }
    if (at % bytes_ != 0) wrong(lane, "a misaligned address");
    if (instruction_.space == Space::shared)
      return in_shared(lane, own_shared(warp_, instruction_, at));
    if (instruction_.space == Space::local) return in_own_local(lane, at);
    if (instruction_.space == Space::generic && at >= kSharedWindow) return in_window(lane, at);
    if (instruction_.space == Space::generic && at >= kLocalWindow)
      return in_own_local(lane, at - kLocalWindow);
    return by_address(lane, at);
  }

  std::byte* in_own_local(int lane, std::uintptr_t at) const {
    if (at + bytes_ > kLocalBytes) wrong(lane, "an address beyond local memory");
    return warp_.local_of(lane) + at;
  }

  std::byte* in_window(int lane, std::uintptr_t at) {
    const auto rank = static_cast<std::size_t>((at - kSharedWindow) >> kRankShift);
    const std::uintptr_t offset = (at & ((1U << kRankShift) - 1)) - kReservedShared;
    const auto& blocks = warp_.block->cluster->blocks;
    if (rank >= blocks.size()) wrong(lane, "shared memory of a block that the cluster lacks");
    const auto host = reinterpret_cast<std::uintptr_t>(blocks[rank]->shared) + offset;
    if (offset + bytes_ > static_cast<std::uintptr_t>(current.shape.shared_bytes))
      wrong(lane, "an address beyond shared memory");
    return in_cluster(lane, host);
  }

  std::byte* by_address(int lane, std::uintptr_t at) {
    if (at % bytes_ != 0) wrong(lane, "a misaligned address");
    if (instruction_.space == Space::shared) return in_shared(lane, at);
    if (instruction_.space != Space::local)
      if (Allocation* found = in_allocation(at)) {
        places_.allocation = found;
        places_.global[lane] = at;
        places_.globals |= 1U << lane;
        return reinterpret_cast<std::byte*>(at);
      }
    if (instruction_.space == Space::global) wrong(lane, beyond(at));
    if (std::byte* found = in_local(lane, at)) return found;
    if (instruction_.space == Space::local) wrong(lane, "an address beyond local memory");
    if (std::byte* found = in_parameters(lane, at)) return found;
    if (std::byte* found = in_cluster(lane, at)) return found;
    wrong(lane, beyond(at));
  }

  std::byte* in_shared(int lane, std::uintptr_t at) {
    if (at + bytes_ > static_cast<std::uintptr_t>(current.shape.shared_bytes))
      wrong(lane, "address " + std::to_string(at) + " of " +
                      std::to_string(current.shape.shared_bytes) + " bytes of shared memory");
    places_.shared[lane] = static_cast<std::uint32_t>(at);
    places_.shareds |= 1U << lane;
    return warp_.block->shared + at;
  }

  Allocation* in_allocation(std::uintptr_t at) const {
    if (places_.allocation != nullptr && places_.allocation->holds(at, bytes_))
      return places_.allocation;
    Allocation* found = memory().find(at);
    return found != nullptr && found->holds(at, bytes_) ? found : nullptr;
  }

  std::byte* in_local(int lane, std::uintptr_t at) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(warp_.local.get());
    if (at < begin || at >= begin + kLanes * kLocalBytes) return nullptr;
    const auto own = reinterpret_cast<std::uintptr_t>(warp_.local_of(lane));
    if (at < own || at + bytes_ > own + kLocalBytes) wrong(lane, "another lane's local memory");
    return reinterpret_cast<std::byte*>(at);
  }

  std::byte* in_parameters(int lane, std::uintptr_t at) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(warp_.parameters);
    if (at < begin || at + bytes_ > begin + current.function->parameter_bytes) return nullptr;
    if (!loads_) wrong(lane, "a store to a parameter");
    return reinterpret_cast<std::byte*>(at);
  }

  // The shared memory of a block of the cluster.
  std::byte* in_cluster(int lane, std::uintptr_t at) {
    const auto bytes = static_cast<std::uintptr_t>(current.shape.shared_bytes);
    for (const auto& block : warp_.block->cluster->blocks) {
      const auto begin = reinterpret_cast<std::uintptr_t>(block->shared);
      if (at < begin || at + bytes_ > begin + bytes) continue;
      if (block->live == 0) wrong(lane, "shared memory of a block that has ended");
      places_.shared[lane] = static_cast<std::uint32_t>(at - begin);
      places_.shareds |= 1U << lane;
      return reinterpret_cast<std::byte*>(at);
    }
    return nullptr;
  }

  static std::string beyond(std::uintptr_t at) {
    for (std::uintptr_t before = 1; before <= 256; ++before)
      if (const Allocation* found = memory().find(at - before))
        return "an address " + std::to_string(at - found->end()) + " bytes beyond an array of " +
               std::to_string(found->end() - found->begin());
    if (const Allocation* found = memory().find(at))
      return "an access that begins " + std::to_string(found->end() - at) +
             " bytes before the end of an array";
    return "an illegal address";
  }

  [[noreturn]] void wrong(int lane, const std::string& what) const {
    fail(warp_, instruction_, "lane " + std::to_string(lane) + ": " + what);
  }

  Warp& warp_;
  const Instruction& instruction_;
  bool loads_;
  std::uint32_t bytes_;
  Places places_;
};

void count_request(Warp& warp, const Instruction& instruction, const Places& places, bool loads) {
  Counters& counters = *warp.counters;
  if (!counters.in_full) return;
  const std::uint32_t bytes = std::uint32_t{instruction.bytes} * instruction.count;
  if (places.globals != 0) {
    count_sectors(loads ? counters.loads : counters.stores, loads, places.global, places.globals,
                  bytes, places.allocation);
    if (!loads) return;
    Warp::Load load{.count = instruction.count,
                    .slots = {},
                    .bytes = bytes * static_cast<std::uint32_t>(std::popcount(places.globals))};
    std::copy_n(instruction.slots, 4, load.slots);
    warp.awaited_bytes += load.bytes;
    warp.loads.push_back(load);
  } else if (places.shareds != 0) {
    count_banks(counters, places.shared, places.shareds, static_cast<int>(bytes));
  } else if (instruction.space == Space::local) {
    ++counters.local_requests;
  }
}

// An element in memory as one type, and in its register as another, as wide or wider.
template <class Memory, class Register>
void move_elements(Warp& warp, const Instruction& instruction, const Places& places, bool loads) {
  for (int i = 0; i < instruction.count; ++i) {
    const std::ptrdiff_t offset = i * static_cast<std::ptrdiff_t>(sizeof(Memory));
    if (loads) {
      Register* to = warp.out<Register>(instruction.slots[i]);
      for_lanes(warp.lanes, [&](int lane) {
        Memory element;
        std::memcpy(&element, places.at[lane] + offset, sizeof element);
        to[lane] = static_cast<Register>(element);
      });
    } else {
      const Register* from = warp.in<Register>(instruction.slots[i]);
      for_lanes(warp.lanes, [&](int lane) {
        const auto element = static_cast<Memory>(from[lane]);
        std::memcpy(places.at[lane] + offset, &element, sizeof element);
      });
    }
  }
}

template <class Unsigned, class Signed>
void move_as(Warp& warp, const Instruction& instruction, const Places& places, bool loads) {
  const auto move = [&](auto element) {
    using Element = decltype(element);
    switch (instruction.width) {
      case 1:
        if constexpr (sizeof(Element) == 1)
          return move_elements<Element, std::uint8_t>(warp, instruction, places, loads);
        break;
      case 2:
        if constexpr (sizeof(Element) <= 2)
          return move_elements<Element, std::uint16_t>(warp, instruction, places, loads);
        break;
      case 4:
        if constexpr (sizeof(Element) <= 4)
          return move_elements<Element, std::uint32_t>(warp, instruction, places, loads);
        break;
      default: return move_elements<Element, std::uint64_t>(warp, instruction, places, loads);
    }
    fail(warp, instruction, "a register that is narrower than what it holds");
  };
  if (instruction.is_signed)
    move(Signed{});
  else
    move(Unsigned{});
}

void access(Warp& warp, const Instruction& instruction, bool loads) {
  const Places places = Finder(warp, instruction, loads).find();
  count_request(warp, instruction, places, loads);
  switch (instruction.bytes) {
    case 1:  return move_as<std::uint8_t, std::int8_t>(warp, instruction, places, loads);
    case 2:  return move_as<std::uint16_t, std::int16_t>(warp, instruction, places, loads);
    case 4:  return move_as<std::uint32_t, std::int32_t>(warp, instruction, places, loads);
    default: return move_as<std::uint64_t, std::int64_t>(warp, instruction, places, loads);
  }
}

}  // namespace

void count_rows(Counters& counters, const std::uint32_t* at, int rows) {
  if (!counters.in_full) return;
  count_banks(counters, at, rows == kLanes ? kAllLanes : (1U << rows) - 1, 16);
}

std::uint32_t own_shared(const Warp& warp, const Instruction& instruction, std::uint64_t at) {
  if (at >> kRankShift != static_cast<std::uint64_t>(warp.block->rank))
    fail(warp, instruction, "an address in the shared memory of another block");
  const auto offset = static_cast<std::uint32_t>(at & ((1U << kRankShift) - 1));
  if (offset < kReservedShared) fail(warp, instruction, "an address before the block's memory");
  return offset - kReservedShared;
}

void load(Warp& warp, const Instruction& instruction) { access(warp, instruction, true); }
void store(Warp& warp, const Instruction& instruction) { access(warp, instruction, false); }

// d, [a], b on words of 4 bytes, lane by lane.
void atomic_add(Warp& warp, const Instruction& instruction) {
  const Places places = Finder(warp, instruction, true).find();
  count_request(warp, instruction, places, true);
  const std::uint32_t* added = warp.in<std::uint32_t>(instruction.slots[7]);
  for_lanes(warp.lanes, [&](int lane) {
    std::uint32_t before;
    std::memcpy(&before, places.at[lane], sizeof before);
    const std::uint32_t after = before + added[lane];
    std::memcpy(places.at[lane], &after, sizeof after);
    if (instruction.slots[0] != kNoSlot)
      warp.out<std::uint32_t>(instruction.slots[0])[lane] = before;
  });
}

// [a], b on floats: what is subnormal, before or after, counts as zero of its sign.
void atomic_add_float(Warp& warp, const Instruction& instruction) {
  const auto flushed = [](float value) {
    return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value;
  };
  const Places places = Finder(warp, instruction, true).find();
  count_request(warp, instruction, places, true);
  const auto* added = warp.in<float>(instruction.slots[7]);
  for_lanes(warp.lanes, [&](int lane) {
    float value;
    std::memcpy(&value, places.at[lane], sizeof value);
    value = flushed(flushed(value) + flushed(added[lane]));
    std::memcpy(places.at[lane], &value, sizeof value);
  });
}

void map_to_rank(Warp& warp, const Instruction& instruction) {
  const auto& blocks = warp.block->cluster->blocks;
  for_lanes(warp.lanes, [&](int lane) {
    const std::uint64_t offset = warp.in<std::uint64_t>(instruction.slots[1])[lane] -
                                 reinterpret_cast<std::uint64_t>(warp.block->shared);
    const std::uint32_t rank = warp.in<std::uint32_t>(instruction.slots[2])[lane];
    if (offset >= static_cast<std::uint64_t>(current.shape.shared_bytes))
      fail(warp, instruction, "mapa of an address that is not in the block's shared memory");
    if (rank >= blocks.size()) fail(warp, instruction, "the cluster has no such block");
    warp.out<std::uint64_t>(instruction.slots[0])[lane] =
        reinterpret_cast<std::uint64_t>(blocks[rank]->shared) + offset;
  });
}

void generic_of_shared(Warp& warp, const Instruction& instruction) {
  const auto base = reinterpret_cast<std::uint64_t>(warp.block->shared);
  for_lanes(warp.lanes, [&](int lane) {
    warp.out<std::uint64_t>(instruction.slots[0])[lane] =
        warp.in<std::uint64_t>(instruction.slots[1])[lane] + base;
  });
}
void shared_of_generic(Warp& warp, const Instruction& instruction) {
  const auto base = reinterpret_cast<std::uint64_t>(warp.block->shared);
  for_lanes(warp.lanes, [&](int lane) {
    warp.out<std::uint64_t>(instruction.slots[0])[lane] =
        warp.in<std::uint64_t>(instruction.slots[1])[lane] - base;
  });
}
void address_of_local(Warp& warp, const Instruction& instruction) {
  for_lanes(warp.lanes, [&](int lane) {
    warp.out<std::uint64_t>(instruction.slots[0])[lane] = reinterpret_cast<std::uint64_t>(
        warp.local_of(lane) + warp.group->frame->local + instruction.number);
  });
}
void address_of_parameter(Warp& warp, const Instruction& instruction) {
  const auto at = reinterpret_cast<std::uint64_t>(warp.parameters + instruction.number);
  for_lanes(warp.lanes,
            [&](int lane) { warp.out<std::uint64_t>(instruction.slots[0])[lane] = at; });
}
void address_of_shared32(Warp& warp, const Instruction& instruction) {
  for_lanes(warp.lanes, [&](int lane) {
    warp.out<std::uint32_t>(instruction.slots[0])[lane] =
        static_cast<std::uint32_t>(instruction.number);
  });
}
void address_of_shared64(Warp& warp, const Instruction& instruction) {
  for_lanes(warp.lanes, [&](int lane) {
    warp.out<std::uint64_t>(instruction.slots[0])[lane] =
        static_cast<std::uint64_t>(instruction.number);
  });
}

// `count` elements of `bytes` in slots 1 and following, and all of them in slot 0.
void pack(Warp& warp, const Instruction& instruction) {
  const std::size_t bytes = instruction.bytes;
  for_lanes(warp.lanes, [&](int lane) {
    std::byte* to = warp.out<std::byte>(instruction.slots[0]) + lane * instruction.width;
    for (std::size_t i = 0; i < instruction.count; ++i)
      std::memcpy(
          to + i * bytes,
          warp.in<std::byte>(instruction.slots[1 + i]) + static_cast<std::size_t>(lane) * bytes,
          bytes);
  });
}
void unpack(Warp& warp, const Instruction& instruction) {
  const std::size_t bytes = instruction.bytes;
  for_lanes(warp.lanes, [&](int lane) {
    std::byte all[16];
    std::memcpy(all, warp.in<std::byte>(instruction.slots[0]) + lane * instruction.width,
                instruction.width);
    for (std::size_t i = 0; i < instruction.count; ++i)
      if (instruction.slots[1 + i] != kNoSlot)
        std::memcpy(
            warp.out<std::byte>(instruction.slots[1 + i]) + static_cast<std::size_t>(lane) * bytes,
            all + i * bytes, bytes);
  });
}

}  // namespace isobit::executor
