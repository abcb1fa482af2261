// SPDX-License-Identifier: Apache-2.0
// Times several functions against each other, so that what disturbs one disturbs all.
#pragma once

#include <functional>
#include <vector>

namespace isobit::lab {

struct Times {
  double median = 0, p20 = 0, p80 = 0;  // seconds a call
};

// What is timed. A call may return before its work is done: then wait() ends with all that was
// called.
struct TimedCall {
  std::function<void()> call, wait = [] {};
};

// Timing goes on for so long for each call, and for some rounds at least.
struct TimingLength {
  double seconds = 0.3;
  int rounds = 7;
};

// Runs A B C, then C B A, and so on; each turn waits until the threads of the last one sleep, and
// begins with an untimed call, so that its data is where it would be had nothing else run.
std::vector<Times> time_interleaved(const std::vector<TimedCall>& timed_calls, TimingLength length);

}  // namespace isobit::lab
