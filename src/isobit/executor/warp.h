// SPDX-License-Identifier: Apache-2.0
// The state of a launch: clusters of blocks of warps, whose lanes go on in groups.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isobit/executor/counters.h"
#include "isobit/executor/launch.h"
#include "isobit/executor/program.h"

namespace isobit::executor {

inline constexpr int kLanes = 32;
inline constexpr std::uint32_t kAllLanes = 0xffff'ffff;
inline constexpr std::uint32_t kLocalBytes = 16 << 10;  // of a lane

// Where machine code finds shared and local memory among all addresses. A block's array in shared
// memory begins behind what the system keeps for itself; the block's rank lies in the bits above.
inline constexpr std::uint64_t kSharedWindow = 0x3000'0000'0000'0000;
inline constexpr std::uint64_t kLocalWindow = 0x2000'0000'0000'0000;
inline constexpr std::uint32_t kReservedShared = 0x400;
inline constexpr int kRankShift = 24;
// Where the parameters of a launch begin in bank 0 of the constants of machine code.
inline constexpr std::uint32_t kParametersInBank = 0x210;

// A call of a function: its registers, and where it returns to.
struct Frame {
  const Function* function = nullptr;
  Frame* caller = nullptr;
  const Call* call = nullptr;
  std::uint32_t return_to = 0;
  std::uint32_t lanes = 0;  // that have not returned
  std::uint32_t depth = 0;
  std::uint32_t local = 0;  // where its local memory begins in each lane's
  std::vector<std::byte> registers;
};

enum class State : std::uint8_t {
  runs,
  at_block_barrier,
  at_cluster_barrier,
  awaits_lanes,  // of its warp
  awaits_copies
};

// Lanes that stand at one instruction.
struct Group {
  std::uint32_t at = 0;  // the instruction
  std::uint32_t lanes = 0;
  Frame* frame = nullptr;
  State state = State::runs;
  std::uint64_t phase = 0;  // of the cluster's barrier when they arrived
};

struct Block;
struct Cluster;

// Products by a warpgroup that are under way, of one warp.
struct Product {
  const Instruction* instruction;
  std::uint64_t a, b;  // descriptors
  bool of_bf16;
  std::uint32_t words[4][kLanes] = {};  // of an a that is in registers
};
struct Products {
  bool begun = false;                       // a fence stands behind the last wait
  const std::vector<Slot>* sums = nullptr;  // where they go; null: none are under way
  const std::byte* registers = nullptr;     // of the call whose sums they are
  float made[64][kLanes] = {};              // by those that are done
  std::vector<Product> open;
  std::deque<std::vector<Product>> committed;
};

struct Warp {
  Block* block = nullptr;
  int index = 0;
  std::uint32_t all = 0, live = 0;  // lanes at the start, and now
  std::vector<Group> groups;
  std::vector<std::unique_ptr<Frame>> frames, spare_frames;
  std::unique_ptr<std::byte[]> local;

  // Of the instruction that runs.
  Group* group = nullptr;   // null once the group has gone elsewhere
  std::uint32_t lanes = 0;  // that execute it
  std::uint32_t next = 0;   // the instruction after it
  bool leaves_row = false;  // what comes next is not simply the next instruction
  std::byte* registers = nullptr;
  const std::byte* constants = nullptr;
  Counters* counters = nullptr;
  const std::byte* parameters = nullptr;

  // Loads from global memory that nobody has needed yet, the oldest first.
  struct Load {
    int count;
    Slot slots[32];  // where it lies, and where moves brought it
    std::uint32_t bytes;
  };
  std::deque<Load> loads;
  std::uint64_t awaited_bytes = 0;

  // Copies that a lane began (cp.async), and in which of its groups.
  struct Copy {
    int lane;
    std::uint64_t group;
    std::uint32_t to;
    std::uintptr_t from;
    std::uint32_t bytes, given;
  };
  std::deque<Copy> copies;
  std::uint64_t committed[kLanes] = {};  // groups
  Products products;

  template <class T>
  T* out(Slot slot) {
    return reinterpret_cast<T*>(registers + slot);
  }
  template <class T>
  const T* in(Slot slot) const {
    return reinterpret_cast<const T*>((slot & kConstant) != 0 ? constants + (slot & ~kConstant)
                                                              : registers + slot);
  }
  std::byte* local_of(int lane) const {
    return local.get() + static_cast<std::size_t>(lane) * kLocalBytes;
  }
};

// An mbarrier.
struct Arrival {
  std::uint32_t expected = 0, pending = 0;
  std::int64_t bytes = 0;
  std::uint64_t phase = 0;
};

struct BulkCopy {
  struct Piece {
    std::byte* to;
    const std::byte* from;
    std::uint32_t bytes, given;  // the rest becomes zeros
  };
  std::vector<Piece> pieces;
  std::uint32_t bytes, arrival;
};

struct Block {
  Cluster* cluster = nullptr;
  std::int64_t index = 0;
  int rank = 0;
  int live = 0, arrived = 0;       // threads
  bool any = false, every = true;  // of the predicates that came to the barrier
  int holding = 0;
  std::byte* shared = nullptr;
  std::vector<std::unique_ptr<Warp>> warps;
  std::map<std::uint32_t, Arrival> arrivals;  // by their address
  std::deque<BulkCopy> bulk;
  // What the last block barrier found, for those who have not yet read it.
  struct Vote {
    bool any = false, every = true;
    int count = 0;
  } vote;
};

struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::byte*> arenas;
  int live = 0, arrived = 0;
  std::uint64_t phase = 0;
};

// What is launched, for the handlers.
struct Current {
  LaunchShape shape;
  const Function* function = nullptr;
  bool copies_land_early = false;
  int capability = 90;
  int approximation = 0;        // added to the last bits of what MUFU gives
  bool long_divisions = false;  // FCHK sends every division the long way
};
extern Current current;

// Throws LaunchError: which instruction, block, warp, and what is wrong.
[[noreturn]] void fail(const Warp& warp, const Instruction& instruction, const std::string& what);

// For each lane that executes.
template <class Body>
inline void for_lanes(std::uint32_t lanes, const Body& body) {
  if (lanes == kAllLanes) {
    for (int lane = 0; lane < kLanes; ++lane) body(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) body(std::countr_zero(lanes));
  }
}

// A frame for the function, with registers that nobody wrote.
Frame* new_frame(Warp& warp, const Function& function);

// The group goes on behind the instruction once its state allows, or repeats the instruction.
void suspend(Warp& warp, State state);
void repeat_later(Warp& warp, State state);
// The lanes that do not execute the instruction go on behind it, as a group of their own.
void part(Warp& warp);
// Whether of the lanes that each lane names all that live are here; else the group comes again.
bool gathered(Warp& warp, const std::uint32_t* named);

// Copies that may land do: those that count on an arrival barrier, or all of a block's.
void land(Block& block, std::uint32_t arrival);
void land_all(Block& block);

// Handlers that are not arithmetic.
void branch(Warp& warp, const Instruction& instruction);
void return_from(Warp& warp, const Instruction& instruction);
void call_function(Warp& warp, const Instruction& instruction);
void trap(Warp& warp, const Instruction& instruction);
void nothing(Warp& warp, const Instruction& instruction);
void sync_block(Warp& warp, const Instruction& instruction);
void vote_in_block(Warp& warp, const Instruction& instruction);
void sync_warp(Warp& warp, const Instruction& instruction);
void arrive_cluster(Warp& warp, const Instruction& instruction);
void wait_cluster(Warp& warp, const Instruction& instruction);
void shuffle_xor(Warp& warp, const Instruction& instruction);
void shuffle_index(Warp& warp, const Instruction& instruction);
void shuffle_xor_here(Warp& warp, const Instruction& instruction);
void shuffle_index_here(Warp& warp, const Instruction& instruction);
void vote_ballot(Warp& warp, const Instruction& instruction);
void vote_any(Warp& warp, const Instruction& instruction);
void vote_all(Warp& warp, const Instruction& instruction);
// Of 32-bit integers, over the lanes that take part; `number` says which.
enum class Reduction : std::uint8_t { add, min_signed, max_signed, min, max, all, any, odd };
std::optional<Reduction> reduction_named(std::string_view opcode);
void reduce_lanes(Warp& warp, const Instruction& instruction);

void load(Warp& warp, const Instruction& instruction);
void store(Warp& warp, const Instruction& instruction);
void atomic_add(Warp& warp, const Instruction& instruction);
void atomic_add_float(Warp& warp, const Instruction& instruction);
void copy_async(Warp& warp, const Instruction& instruction);
void commit_copies(Warp& warp, const Instruction& instruction);
void wait_copies(Warp& warp, const Instruction& instruction);
void init_arrival(Warp& warp, const Instruction& instruction);
void expect_bytes(Warp& warp, const Instruction& instruction);
void arrive(Warp& warp, const Instruction& instruction);
void wait_arrival(Warp& warp, const Instruction& instruction);
void copy_bulk(Warp& warp, const Instruction& instruction);
void copy_box(Warp& warp, const Instruction& instruction);
void exchange_arrival(Warp& warp, const Instruction& instruction);
void expect_machine_bytes(Warp& warp, const Instruction& instruction);
void check_phase(Warp& warp, const Instruction& instruction);
void copy_bulk_once(Warp& warp, const Instruction& instruction);
// Where an address in a block's shared memory, as machine code has it, lies in its array.
std::uint32_t own_shared(const Warp& warp, const Instruction& instruction, std::uint64_t at);
// The 32-bit address of a lane: slots 4 and 6 and the number.
inline std::uint32_t machine_address(const Warp& warp, const Instruction& instruction, int lane) {
  return warp.in<std::uint32_t>(instruction.slots[4])[lane] +
         warp.in<std::uint32_t>(instruction.slots[6])[lane] +
         static_cast<std::uint32_t>(instruction.number);
}
void map_to_rank(Warp& warp, const Instruction& instruction);
void generic_of_shared(Warp& warp, const Instruction& instruction);
void shared_of_generic(Warp& warp, const Instruction& instruction);
void address_of_local(Warp& warp, const Instruction& instruction);
void address_of_parameter(Warp& warp, const Instruction& instruction);
void address_of_shared32(Warp& warp, const Instruction& instruction);
void address_of_shared64(Warp& warp, const Instruction& instruction);
void pack(Warp& warp, const Instruction& instruction);
void unpack(Warp& warp, const Instruction& instruction);
// Counts the wavefronts of so many rows of 16 bytes, of which eight are read at once.
void count_rows(Counters& counters, const std::uint32_t* at, int rows);
void load_matrices(Warp& warp, const Instruction& instruction);
void load_matrices_transposed(Warp& warp, const Instruction& instruction);
void store_matrices(Warp& warp, const Instruction& instruction);
void store_matrices_transposed(Warp& warp, const Instruction& instruction);
void multiply_add_f16(Warp& warp, const Instruction& instruction);
void multiply_add_bf16(Warp& warp, const Instruction& instruction);
Handler warpgroup_handler(std::string_view opcode);  // null where it is unknown

// What machine code finds in bank 0 of its constants, of which the place is known; the rest of the
// bank it may not read.
void write_launch(std::vector<std::byte>& bank, const LaunchShape& shape);
bool is_known_constant(std::uint32_t offset, std::uint32_t bytes);

// What a special register holds in each lane, or null: %tid.x and the like.
Handler special_register(std::string_view name);

}  // namespace isobit::executor
