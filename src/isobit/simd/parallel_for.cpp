// SPDX-License-Identifier: Apache-2.0
// A fixed set of waiting threads: one call at a time uses them, a second one runs its tasks itself.
#include "isobit/simd/parallel_for.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace isobit::simd {
namespace {

// A call that comes soon after another finds its helpers still awake.
constexpr int kSpins = 2000;

class Pool {
 public:
  explicit Pool(int helpers) {
    for (int i = 0; i < helpers; ++i) threads_.emplace_back([this] { help(); });
  }

  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      generation_.fetch_add(1);
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void run(std::int64_t tasks, ParallelFor::Body body, void* context) {
    const std::unique_lock busy(busy_, std::try_to_lock);
    if (!busy.owns_lock() || threads_.empty()) {
      for (std::int64_t task = 0; task < tasks; ++task) body(context, task);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      body_ = body;
      context_ = context;
      tasks_ = tasks;
      next_.store(0, std::memory_order_relaxed);
      active_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    work();
    for (int spin = 0; active_.load(std::memory_order_acquire) > 0; ++spin)
      if (spin > kSpins) std::this_thread::yield();
  }

 private:
  void work() {
    for (;;) {
      const std::int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks_) return;
      body_(context_, task);
    }
  }

  void help() {
    std::uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen;
           ++spin)
        pause();
      if (generation_.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return generation_.load(std::memory_order_relaxed) != seen; });
      }
      seen = generation_.load(std::memory_order_acquire);
      if (stopping_) return;
      work();
      active_.fetch_sub(1, std::memory_order_release);
    }
  }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  std::mutex busy_, mutex_;
  std::condition_variable wake_;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<std::int64_t> next_{0};
  std::atomic<int> active_{0};
  std::int64_t tasks_ = 0;
  ParallelFor::Body body_ = nullptr;
  void* context_ = nullptr;
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

// The pool of this process. A forked child has none of its parent's threads, so it leaves the
// parent's pool untouched and makes its own.
Pool& pool() {
  static std::mutex mutex;
  static std::unique_ptr<Pool> current;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  if (owner != getpid()) {
    static_cast<void>(current.release());
    current = std::make_unique<Pool>(Machine::here().threads - 1);
    owner = getpid();
  }
  return *current;
}

}  // namespace

ParallelFor threads() {
  return {[](void*, std::int64_t tasks, ParallelFor::Body body, void* context) {
            pool().run(tasks, body, context);
          },
          nullptr};
}

Allocator heap() {
  return {[](void*, std::size_t bytes) { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); },
          [](void*, void* memory, std::size_t) { std::free(memory); }, nullptr};
}

Execution here(int threads) {
  Execution execution;
  execution.machine = Machine::here();
  if (threads > 0) execution.machine.threads = threads;
  execution.parallel_for = simd::threads();
  execution.allocator = heap();
  return execution;
}

}  // namespace isobit::simd
