// SPDX-License-Identifier: Apache-2.0
// Launches a kernel of a module on the memory of the executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "isobit/executor/counters.h"

namespace isobit::executor {

struct Function;

// What a GPU would punish or leave undefined.
class LaunchError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct LaunchShape {
  std::int64_t blocks = 1;
  int threads = 1, cluster = 1;
  std::int64_t shared_bytes = 0;
  std::int64_t along_y = 1, along_z = 1;  // of the blocks; the others lie along x
};

// Which warp runs next, and how many blocks are in flight. All are right; each finds other faults.
enum class Order { in_order, reversed, random, starving };
struct Schedule {
  Order order = Order::in_order;
  std::uint64_t seed = 1;
  int resident = 2;                // blocks, or one cluster where that is more
  bool copies_land_early = false;  // as they begin; else as late as they may
  // Of machine code: what is added to the last bits of an approximation (MUFU), whose bits are not
  // known, and whether divisions go the long way where the short one would do.
  int approximation = 0;
  bool long_divisions = false;
};

struct Limits {
  int capability = 90;  // 90 for sm_90
  std::int64_t shared_bytes = 227 << 10;
  std::uint64_t instructions = 2'000'000'000;  // of warps: a kernel that takes more hangs
};

// Adds what it counts.
void launch(const Function& kernel, const LaunchShape& shape, const std::byte* parameters,
            Counters& counters, const Schedule& schedule = {}, const Limits& limits = {});

}  // namespace isobit::executor
