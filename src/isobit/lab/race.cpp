// SPDX-License-Identifier: Apache-2.0
// The timing loop: short calls are timed many at a time, quantiles are taken over turns.
#include "isobit/lab/race.h"

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
// timed with whoever comes next.
void wait_until_quiet() {
  constexpr double kStep = 3e-4, kAtMost = 3e-2;
  const std::chrono::duration<double> step(kStep);
  for (double waited = 0; waited < kAtMost; waited += kStep) {
    const double before = processor_time();
    std::this_thread::sleep_for(step);
    if (processor_time() - before < kStep / 2) return;
  }
}

struct Racer {
  const Runner& runner;
  int calls = 1;  // in a turn
  std::vector<double> turns = {};

  double turn() const {
    wait_until_quiet();
    runner.call();
    runner.wait();
    const double start = now();
    for (int i = 0; i < calls; ++i) runner.call();
    runner.wait();
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

std::vector<Times> race(const std::vector<Runner>& runners, RaceLength length) {
  std::vector<Racer> racers;
  for (const Runner& runner : runners) racers.push_back({runner});
  for (Racer& racer : racers) racer.calibrate();
  const double end = now() + length.seconds * static_cast<double>(racers.size());
  for (int round = 0; round < length.rounds || now() < end; ++round)
    for (std::size_t i = 0; i < racers.size(); ++i) {
      Racer& racer = racers[round % 2 == 0 ? i : racers.size() - 1 - i];
      racer.turns.push_back(racer.turn());
    }
  std::vector<Times> times;
  for (Racer& racer : racers) times.push_back(racer.times());
  return times;
}

}  // namespace isobit::lab
