// SPDX-License-Identifier: Apache-2.0
// What callers lend may fail or be peculiar: memory that is refused or lies askew, threads that
// throw, dawdle or end, an odd float mode. Every operation, in every variant, keeps its promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "isobit/simd/parallel_for.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

constexpr int kThreads = 4;

// A caller's memory. It counts, it can refuse the k-th request, it starts `askew` bytes past a
// cache line, and it sees what is written beside it.
class Memory {
 public:
  std::int64_t refused = 0;  // which request gets nothing; 0: none
  std::size_t askew = 0;
  std::int64_t requests = 0, live = 0;
  bool damaged = false;

  Allocator allocator() {
    return {[](void* self, std::size_t bytes) { return static_cast<Memory*>(self)->take(bytes); },
            [](void* self, void* memory, std::size_t bytes) {
              static_cast<Memory*>(self)->give_back(static_cast<std::byte*>(memory), bytes);
            },
            this};
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr std::byte kMark{0xa5};

  void* take(std::size_t bytes) {
    if (++requests == refused) return nullptr;
    ++live;
    auto* block = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 3 * kGuard) / 64 * 64));
    std::fill_n(block, kGuard + askew, kMark);
    std::fill_n(block + kGuard + askew + bytes, 64, kMark);
    return block + kGuard + askew;
  }

  void give_back(std::byte* memory, std::size_t bytes) {
    --live;
    const auto marked = [](std::byte byte) { return byte == kMark; };
    damaged |= !std::all_of(memory - kGuard - askew, memory, marked) ||
               !std::all_of(memory + bytes, memory + bytes + 64, marked);
    std::free(memory - kGuard - askew);
  }
};

// A caller's threads, as a function.
using RunTasks = std::function<void(std::int64_t tasks, const std::function<void(std::int64_t)>&)>;

ParallelFor lent(RunTasks& run_tasks) {
  return {[](void* self, std::int64_t tasks, ParallelFor::Body body, void* context) {
            (*static_cast<RunTasks*>(self))(tasks, [&](std::int64_t task) { body(context, task); });
          },
          &run_tasks};
}

class Faults : public testing::TestWithParam<const Operation*> {
 protected:
  // Large enough that tasks are shared out.
  static Workload drawn(std::int64_t rows = 300, std::string_view input = "randn") {
    Flags flags;
    flags.input = {std::string(input)};
    flags.dtype = {"f32"};
    Workload workload(resized(cases_of(*GetParam(), flags, "quick").at(0), rows, 257, 400'000));
    workload.draw();
    return workload;
  }

  // Calls visit(run, expected) for every variant: run(execution) runs it, expected are its bits.
  template <class Visit>
  static void for_each_variant(const Workload& workload, Visit visit) {
    Flags flags;
    flags.threads = {kThreads};
    const std::vector<Configuration> configurations =
        configurations_of(workload, flags, Unnamed::all).able;
    ASSERT_FALSE(configurations.empty());
    for (const Configuration& configuration : configurations) {
      SCOPED_TRACE(label(configuration));
      run(workload, configuration);
      const std::string expected = bits_of_outputs(workload);
      workload.poison();
      visit(
          [&](const Execution& execution) {
            workload.operation().run(configuration.variant, configuration.plan, workload.args(),
                                     execution);
          },
          expected);
    }
  }

  static Execution execution() { return execution_for(Machine::here().isa, kThreads); }
};

TEST_P(Faults, MemoryRefusedAtAnyRequestLeavesEverythingAsItWas) {
  const Workload workload = drawn();
  for_each_variant(workload, [&](const auto& run, const std::string& expected) {
    const std::string untouched = bits_of_outputs(workload);
    bool refused = true;
    for (std::int64_t k = 1; refused; ++k) {
      Memory memory;
      memory.refused = k;
      Execution lent = execution();
      lent.allocator = memory.allocator();
      try {
        run(lent);
        refused = false;
      } catch (const std::bad_alloc& error) {
        EXPECT_NE(std::string(error.what()).find("use fewer rows or threads"), std::string::npos);
        EXPECT_EQ(bits_of_outputs(workload), untouched);
      }
      EXPECT_EQ(memory.live, 0);
      EXPECT_EQ(memory.requests, refused ? k : k - 1);
    }
    EXPECT_EQ(bits_of_outputs(workload), expected);
    EXPECT_EQ(workload.damage(), "");
  });
}

TEST_P(Faults, MemoryMayLieAskew) {
  const Workload workload = drawn();
  for_each_variant(workload, [&](const auto& run, const std::string& expected) {
    for (std::size_t askew : {0, 1, 4, 16, 32, 63}) {
      Memory memory;
      memory.askew = askew;
      Execution lent = execution();
      lent.allocator = memory.allocator();
      run(lent);
      EXPECT_EQ(bits_of_outputs(workload), expected) << askew << " bytes past a cache line";
      EXPECT_FALSE(memory.damaged) << "memory beside the workspace was written";
      EXPECT_EQ(memory.live, 0);
    }
  });
}

struct Interruption : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// It throws before, amid and after the tasks of its n-th use.
TEST_P(Faults, ThreadsMayThrow) {
  const Workload workload = drawn();
  for_each_variant(workload, [&](const auto& run, const std::string& expected) {
    for (const double done : {0.0, 0.5, 1.0}) {
      bool interrupted = true;
      for (int n = 1; interrupted; ++n) {
        int uses = 0;
        RunTasks throws = [&](std::int64_t tasks, const auto& task) {
          const bool last = ++uses == n;
          const auto end = static_cast<std::int64_t>(last ? done * tasks : tasks);
          for (std::int64_t i = 0; i < end; ++i) task(i);
          if (last) throw Interruption("no threads today");
        };
        Memory memory;
        Execution lent_execution = execution();
        lent_execution.parallel_for = lent(throws);
        lent_execution.allocator = memory.allocator();
        try {
          run(lent_execution);
          interrupted = false;
        } catch (const Interruption&) {}
        EXPECT_EQ(memory.live, 0);
        EXPECT_EQ(interrupted, uses == n);
        EXPECT_EQ(workload.damage(), "");
      }
      EXPECT_EQ(bits_of_outputs(workload), expected);
    }
    workload.poison();
    run(execution());
    EXPECT_EQ(bits_of_outputs(workload), expected) << "the library's own threads afterwards";
  });
}

TEST_P(Faults, TasksMayRunInAnyOrderAndOnAnyThreads) {
  RunTasks orders[] = {
      [](std::int64_t tasks, const auto& task) {
        for (std::int64_t i = tasks; i-- > 0;) task(i);
      },
      [](std::int64_t tasks, const auto& task) {
        std::vector<std::int64_t> order(static_cast<std::size_t>(tasks));
        for (std::int64_t i = 0; i < tasks; ++i) order[i] = i;
        std::shuffle(order.begin(), order.end(), std::mt19937(7));
        for (std::int64_t i : order) task(i);
      },
      [](std::int64_t tasks, const auto& task) {  // each on a thread that comes and goes
        for (std::int64_t i = 0; i < tasks; ++i) std::thread([&] { task(i); }).join();
      },
      [](std::int64_t tasks, const auto& task) {  // all at once
        std::vector<std::thread> threads;
        for (std::int64_t i = 0; i < tasks; ++i) threads.emplace_back([&, i] { task(i); });
        for (std::thread& thread : threads) thread.join();
      },
      [](std::int64_t tasks, const auto& task) {  // a pool within a pool
        simd::threads()(2, [&](std::int64_t half) {
          const std::int64_t first = half * tasks / 2, last = (half + 1) * tasks / 2;
          simd::threads()(last - first, [&](std::int64_t i) { task(first + i); });
        });
      },
  };
  const Workload workload = drawn();
  for_each_variant(workload, [&](const auto& run, const std::string& expected) {
    for (RunTasks& order : orders) {
      Execution lent_execution = execution();
      lent_execution.parallel_for = lent(order);
      workload.poison();
      run(lent_execution);
      EXPECT_EQ(bits_of_outputs(workload), expected) << "order " << &order - orders;
    }
  });
}

TEST_P(Faults, EightCallersAtOnceGetTheSameBits) {
  constexpr int kCallers = 8;
  std::vector<Workload> workloads;
  for (int i = 0; i < kCallers; ++i) workloads.push_back(drawn());
  std::barrier together(kCallers);
  std::vector<std::thread> callers;
  for (const Workload& workload : workloads)
    callers.emplace_back([&] {
      together.arrive_and_wait();
      for_each_variant(workload, [&](const auto& run, const std::string& expected) {
        for (int call = 0; call < 3; ++call) {
          run(execution());
          EXPECT_EQ(bits_of_outputs(workload), expected);
        }
      });
    });
  for (std::thread& caller : callers) caller.join();
  for (const Workload& workload : workloads)
    EXPECT_EQ(bits_of_outputs(workload), bits_of_outputs(workloads[0]));
}

int threads_of_this_process() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (int count = 0; word == "Threads:" && status >> count) return count;
  return -1;
}

TEST_P(Faults, CallersMayComeAndGo) {
  const Workload workload = drawn();
  const int callers = thinned() ? 5 : 50;
  std::thread([] {}).join();  // with the first, ThreadSanitizer starts one of its own
  for_each_variant(workload, [&](const auto& run, const std::string& expected) {
    const int before = threads_of_this_process();
    for (int caller = 0; caller < callers; ++caller) std::thread([&] { run(execution()); }).join();
    EXPECT_EQ(bits_of_outputs(workload), expected);
    // The kernel counts a thread for a moment after it was joined.
    for (int i = 0; i < 1000 && threads_of_this_process() > before; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(threads_of_this_process(), before) << "a thread was left behind";
  });
}

INSTANTIATE_TEST_SUITE_P(Operations, Faults, testing::ValuesIn(catalog().begin(), catalog().end()),
                         name_of_pass);

}  // namespace
}  // namespace isobit::lab
