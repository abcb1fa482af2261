// SPDX-License-Identifier: Apache-2.0
// The shape of a launch, in the words of both back ends.
#pragma once

#include <cstdint>

namespace isobit::simt {

inline constexpr int kWarpThreads = 32;
inline constexpr unsigned kAllLanes = 0xffffffff;
inline constexpr int kMostThreads = 1024;               // of a block
inline constexpr std::int64_t kMostShared = 227 << 10;  // bytes of a block, from sm_90 on

struct LaunchShape {
  std::int64_t blocks = 1;
  int threads = 1;  // of a block
  int cluster = 1;  // blocks that see each other's shared memory
};

}  // namespace isobit::simt
