// SPDX-License-Identifier: Apache-2.0
// Finds the fastest of several ways to compute one workload, and doubts it.
#pragma once

#include <string>
#include <vector>

#include "isobit/lab/race.h"
#include "isobit/lab/ways.h"

namespace isobit::lab {

struct Timed {
  Way way;
  Times times;
};

// The usual way, and the best of all: often the same.
struct Contest {
  Timed usual, best;

  double ratio() const { return usual.times.median / best.times.median; }
  // Whether the best is better beyond doubt.
  bool won() const;
};

struct ContestLength {
  RaceLength heat, final;
};

// The first way is the usual one. All run in a short race; then the fastest and the usual one alone
// in a longer one, since the fastest of many is partly the luckiest.
Contest compete(const Workload& workload, const std::vector<Way>& ways,
                const ContestLength& length);

// Runs every way once: which of them wrote other bits than the first, or beside its outputs; empty
// where none did.
std::string difference(const Workload& workload, const std::vector<Way>& ways);

}  // namespace isobit::lab
