// SPDX-License-Identifier: Apache-2.0
// The library's own threads: every task once, callers side by side, and processes that fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <thread>
#include <vector>

#include "isobit/ops/layernorm/layernorm.h"
#include "isobit/simd/parallel_for.h"

namespace isobit {
namespace {

TEST(Threads, EveryTaskRunsOnce) {
  for (int tasks : {0, 1, 2, 3, 100, 10000}) {
    std::vector<std::atomic<int>> runs(tasks);
    for (int call = 0; call < 50; ++call)
      simd::threads()(tasks, [&](std::int64_t task) { runs[task].fetch_add(1); });
    for (const std::atomic<int>& count : runs) ASSERT_EQ(count.load(), 50);
  }
}

TEST(Threads, CallsWithinCallsRun) {
  std::atomic<int> count = 0;
  simd::threads()(
      4, [&](std::int64_t) { simd::threads()(4, [&](std::int64_t) { count.fetch_add(1); }); });
  EXPECT_EQ(count.load(), 16);
}

// Enough rows for every thread to get some.
std::vector<float> normalised_rows() {
  constexpr std::int64_t kRows = 300, kCols = 257;
  std::vector<float> x(kRows * kCols), y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 2654435761u % 1000);
  const auto view = [&](std::vector<float>& values) {
    return matrix_view(values.data(), std::ssize(values) * 4, DType::f32, kRows, kCols, kCols);
  };
  layernorm::ForwardArgs args;
  args.x = view(x);
  args.y = view(y);
  layernorm::forward(args, simd::here(4));
  return y;
}

TEST(Threads, CallersSideBySideGetTheSameBits) {
  const std::vector<float> expected = normalised_rows();
  std::atomic<int> wrong = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 8; ++caller)
    callers.emplace_back([&] {
      for (int call = 0; call < 20; ++call) wrong += normalised_rows() != expected;
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

// Every task waits for all others, so each has a thread of its own, which has therefore started.
void start_all_helpers() {
  const int threads = Machine::here().threads;
  std::barrier everybody(threads);
  simd::threads()(threads, [&](std::int64_t) { everybody.arrive_and_wait(); });
}

// A child has none of its parent's threads; it must still compute, and still end by exit(). The
// helpers have started before the fork: a thread that starts allocates, and AddressSanitizer's
// allocator, unlike glibc's, leaves its lock held in a child forked meanwhile.
TEST(Threads, ForkedChildComputesAndExits) {
  start_all_helpers();
  const std::vector<float> expected = normalised_rows();
  for (const bool computes : {true, false}) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      std::exit(computes && normalised_rows() != expected ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
}

}  // namespace
}  // namespace isobit
