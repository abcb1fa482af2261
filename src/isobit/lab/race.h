// SPDX-License-Identifier: Apache-2.0
// Times several functions against each other, so that what disturbs one disturbs all.
#pragma once

#include <functional>
#include <vector>

namespace isobit::lab {

struct Times {
  double median = 0, p20 = 0, p80 = 0;  // seconds a call
};

// Who is timed. A call may return before its work is done: then wait() ends with all that was
// called.
struct Runner {
  std::function<void()> call, wait = [] {};
};

// The length of a race: it goes on for so long for each runner, and for some rounds at least.
struct RaceLength {
  double seconds = 0.3;
  int rounds = 7;
};

// Runs A B C, then C B A, and so on; each turn waits until the threads of the last one sleep. A
// runner goes once untimed before its turn, so that its own data is where it would be had nobody
// else run.
std::vector<Times> race(const std::vector<Runner>& runners, RaceLength length);

}  // namespace isobit::lab
