// SPDX-License-Identifier: Apache-2.0
// What a launch did, counted: the causes of a kernel's speed, not its time.
#pragma once

#include <cstdint>

namespace isobit::executor {

enum class Kind : std::uint8_t {
  integer,
  f32,
  f64,
  half,
  move,
  convert,
  load,
  store,
  control,
  sync,
  shuffle,
  copy,
  tensor,
};
inline constexpr int kKinds = static_cast<int>(Kind::tensor) + 1;

// Requests of warps to global memory, which moves sectors of 32 bytes.
struct Traffic {
  std::uint64_t requests = 0, sectors = 0;
  std::uint64_t least = 0;     // sectors that the requested bytes need where they are adjacent
  std::uint64_t distinct = 0;  // sectors, each counted once a launch
  std::uint64_t bytes = 0;     // that lanes asked for
  std::uint64_t wide = 0;      // requests of 16 bytes a lane
};

struct Counters {
  // Or no more than instructions: to count accesses takes long.
  bool in_full = true;

  std::uint64_t instructions = 0;  // of warps
  std::uint64_t lanes = 0;         // that executed them
  std::uint64_t by_kind[kKinds] = {};
  Traffic loads, stores;
  std::uint64_t shared_requests = 0, shared_wavefronts = 0, shared_least = 0;
  std::uint64_t local_requests = 0;
  std::uint64_t copies = 0, copied_bytes = 0;  // to shared memory, beside the threads
  std::uint64_t barriers = 0, shuffles = 0, divergent_branches = 0;
  // Of each warp, as it first needs what a load brings: the bytes that are on their way to it.
  std::uint64_t waits = 0, awaited_bytes = 0, most_awaited = 0;
  // The same of a block, as it waits for bulk copies.
  std::uint64_t bulk_waits = 0, awaited_bulk_bytes = 0;
};

}  // namespace isobit::executor
