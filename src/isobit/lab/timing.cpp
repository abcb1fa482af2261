// SPDX-License-Identifier: Apache-2.0
// The timing loop: short calls are timed many at a time, quantiles are taken over turns.
#include "isobit/lab/timing.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

namespace isobit::lab {
namespace {

constexpr double kTurn = 5e-4;  // seconds at least, a thousand times what reading the clock costs

double now() {
  using std::chrono::steady_clock;
  return std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count();
}

double processor_time() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// OpenMP's threads go on spinning after a call, for 5 to 8 ms with GCC's library, and would be
// timed with what comes next.
void wait_until_quiet() {
  constexpr double kStep = 3e-4, kAtMost = 3e-2;
  const std::chrono::duration<double> step(kStep);
  for (double waited = 0; waited < kAtMost; waited += kStep) {
    const double before = processor_time();
    std::this_thread::sleep_for(step);
    if (processor_time() - before < kStep / 2) return;
  }
}

struct Subject {
  const TimedCall& timed_call;
  int calls = 1;  // in a turn
  std::vector<double> turns = {};

  double turn() const {
    wait_until_quiet();
    timed_call.call();
    timed_call.wait();
    const double start = now();
    for (int i = 0; i < calls; ++i) timed_call.call();
    timed_call.wait();
    return (now() - start) / calls;
  }

  void calibrate() {
    for (double seconds = turn(); seconds * calls < kTurn; seconds = turn())
      calls = std::max(2 * calls, static_cast<int>(kTurn / std::max(seconds, 1e-9)));
  }

  Times times() {
    std::sort(turns.begin(), turns.end());
    const auto quantile = [&](double q) {
      return turns[static_cast<std::size_t>(q * static_cast<double>(turns.size() - 1) + 0.5)];
    };
    return {quantile(0.5), quantile(0.2), quantile(0.8)};
  }
};

}  // namespace

std::vector<Times> time_interleaved(const std::vector<TimedCall>& timed_calls,
                                    TimingLength length) {
  std::vector<Subject> subjects;
  for (const TimedCall& timed_call : timed_calls) subjects.push_back({timed_call});
  for (Subject& subject : subjects) subject.calibrate();
  const double end = now() + length.seconds * static_cast<double>(subjects.size());
  for (int round = 0; round < length.rounds || now() < end; ++round)
    for (std::size_t i = 0; i < subjects.size(); ++i) {
      Subject& subject = subjects[round % 2 == 0 ? i : subjects.size() - 1 - i];
      subject.turns.push_back(subject.turn());
    }
  std::vector<Times> times;
  for (Subject& subject : subjects) times.push_back(subject.times());
  return times;
}

}  // namespace isobit::lab
