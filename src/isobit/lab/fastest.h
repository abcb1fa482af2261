// SPDX-License-Identifier: Apache-2.0
// Finds the fastest of several configurations that compute one workload, and doubts it.
#pragma once

#include <string>
#include <vector>

#include "isobit/lab/configurations.h"
#include "isobit/lab/timing.h"

namespace isobit::lab {

struct Timed {
  Configuration configuration;
  Times times;
};

// The usual configuration, and the best of all: often the same.
struct Fastest {
  Timed usual, best;

  double ratio() const { return usual.times.median / best.times.median; }
  // Whether the best is better beyond doubt.
  bool is_faster() const;
};

struct SearchLength {
  TimingLength heat, final;
};

// The first configuration is the usual one. All are timed briefly; then the fastest and the usual
// one alone for longer, since the fastest of many is partly the luckiest.
Fastest find_fastest(const Workload& workload, const std::vector<Configuration>& configurations,
                     const SearchLength& length);

// Runs every configuration once: which of them wrote other bits than the first, or beside its
// outputs; empty where none did.
std::string difference(const Workload& workload, const std::vector<Configuration>& configurations);

}  // namespace isobit::lab
