// SPDX-License-Identifier: Apache-2.0
// The library's own threads: every task once, callers side by side, and processes that fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <latch>
#include <string>
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

// Forks a child that ends by exit(); empty where `right` returned true in it within 20 s.
template <class Right>
std::string outcome_of_child(const Right& right) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::exit(right() ? 0 : 1);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) return "no child";
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "wrong";
}

// A child has none of its parent's threads; it must still compute, and still end by exit(). The
// helpers have started before the fork: a thread that starts allocates, and AddressSanitizer's
// allocator, unlike glibc's, leaves its lock held in a child forked meanwhile.
TEST(Threads, ForkedChildComputesAndExits) {
  start_all_helpers();
  const std::vector<float> expected = normalised_rows();
  EXPECT_EQ(outcome_of_child([&] { return normalised_rows() == expected; }), "");
  EXPECT_EQ(outcome_of_child([] { return true; }), "");
}

// A child that had kept its parent's pool would compute too, alone: here it would wait for ever.
TEST(Threads, ForkedChildHasThreadsOfItsOwn) {
  start_all_helpers();
  const std::string died = outcome_of_child([] {
    start_all_helpers();
    return true;
  });
  EXPECT_EQ(died, "");
}

// Nothing of a call on another thread may keep a child from its own: no lock, no thread.
TEST(Threads, ForkedChildComputesWhateverOtherThreadsDoMeanwhile) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer takes the child's threads for those that its parent had";
#endif
  start_all_helpers();
  const std::vector<float> expected = normalised_rows();
  std::atomic<bool> done = false;
  std::latch started(3);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller)
    callers.emplace_back([&] {
      simd::threads()(2, [](std::int64_t) {});
      started.count_down();
      while (!done.load()) simd::threads()(2, [](std::int64_t) {});
    });
  started.wait();  // as for the helpers: AddressSanitizer's lock may be held while a thread starts
  for (int i = 0; i < 50; ++i) {
    const std::string died = outcome_of_child([&] { return normalised_rows() == expected; });
    EXPECT_EQ(died, "") << "child " << i;
    if (!died.empty()) break;
  }
  done.store(true);
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace isobit
