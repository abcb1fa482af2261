// SPDX-License-Identifier: Apache-2.0
// Waiting threads that one call at a time may use; a call beside it runs its tasks itself.
#include "isobit/simd/parallel_for.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "isobit/simd/pool.h"
#include "isobit/simd/wait.h"

namespace isobit::simd {
namespace {

// A call that comes soon after another finds its helpers still awake: to wake one takes 50 us, more
// where processors are virtual, and two threads that sleep between calls are hardly faster.
constexpr std::chrono::milliseconds kAwake{1};

// Helpers take tasks by counting a ticket down. A ticket carries its call's number, so a helper
// that wakes up late takes nothing from the next call, and a call waits for tasks that were taken,
// never for helpers.
class Pool {
 public:
  // Where the system grants fewer threads, there are fewer helpers: a call needs none.
  explicit Pool(int helpers) {
    try {
      for (; helpers_ < helpers; ++helpers_) std::thread([this] { help(); }).detach();
    } catch (const std::exception&) { return; }
  }

  void run(std::int64_t tasks, ParallelFor::Body body, void* context) {
    if (helpers_ == 0 || tasks > kMaxTasks || busy_.exchange(true, std::memory_order_acquire)) {
      for (std::int64_t task = 0; task < tasks; ++task) body(context, task);
      return;
    }
    body_ = body;
    context_ = context;
    unfinished_.store(tasks, std::memory_order_relaxed);
    const Ticket call = call_of(ticket_.load(std::memory_order_relaxed)) + kOneCall;
    {
      const std::lock_guard lock(mutex_);  // nobody falls asleep between looking and waiting
      ticket_.store(call + static_cast<Ticket>(tasks), std::memory_order_release);
    }
    wake_.notify_all();
    work(call);
    wait_until([this] { return unfinished_.load(std::memory_order_acquire) == 0; });
    busy_.store(false, std::memory_order_release);
  }

 private:
  using Ticket = std::uint64_t;  // the number of the call, and below it how many tasks are left
  static constexpr Ticket kOneCall = Ticket{1} << 32;
  static constexpr std::int64_t kMaxTasks = kOneCall - 1;
  static Ticket call_of(Ticket ticket) { return ticket & ~(kOneCall - 1); }

  void work(Ticket call) {
    Ticket ticket = ticket_.load(std::memory_order_acquire);
    while (call_of(ticket) == call && ticket != call) {
      if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel)) continue;
      body_(context_, static_cast<std::int64_t>(ticket - call) - 1);
      unfinished_.fetch_sub(1, std::memory_order_release);
      ticket = ticket_.load(std::memory_order_acquire);
    }
  }

  void help() {
    for (Ticket seen = 0;;) {
      const auto called = [&] { return call_of(ticket_.load(std::memory_order_acquire)) != seen; };
      const auto end = std::chrono::steady_clock::now() + kAwake;
      while (!called() && std::chrono::steady_clock::now() < end)
        for (int spin = 0; spin < 50 && !called(); ++spin) pause();
      if (!called()) {
        std::unique_lock lock(mutex_);
        // As wake_.wait does, which would ask every machine for the libstdc++ of g++ 12.
        while (!called()) pthread_cond_wait(wake_.native_handle(), mutex_.native_handle());
      }
      seen = call_of(ticket_.load(std::memory_order_acquire));
      work(seen);
    }
  }

  int helpers_ = 0;                // read by callers only, after the pool is made
  std::atomic<bool> busy_{false};  // a call is under way
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<Ticket> ticket_{0};
  std::atomic<std::int64_t> unfinished_{0};
  ParallelFor::Body body_ = nullptr;
  void* context_ = nullptr;
};

// The pool of this process. It is never destroyed: helpers end with the process, and a forked
// child, which has none of its parent's threads, must neither use nor join them. The child makes
// its own. There is no mutex here: a child would find it locked for ever where another thread held
// it at the fork, whereas a pool that its parent was making is to it none that it has begun.
Pool& pool() {
  static std::atomic<Pool*> current = nullptr;
  static std::atomic<pid_t> owner = 0, maker = 0;
  const pid_t self = getpid();
  while (owner.load(std::memory_order_acquire) != self) {
    pid_t before = maker.load(std::memory_order_relaxed);
    if (before == self || !maker.compare_exchange_strong(before, self)) {
      std::this_thread::yield();
      continue;
    }
    try {
      current.store(new Pool(Machine::here().threads - 1), std::memory_order_relaxed);
    } catch (...) {
      maker.store(0);
      throw;
    }
    owner.store(self, std::memory_order_release);
  }
  return *current.load(std::memory_order_relaxed);
}

}  // namespace

ParallelFor threads() {
  return {[](void*, std::int64_t tasks, ParallelFor::Body body, void* context) {
            pool().run(tasks, body, context);
          },
          nullptr};
}

Allocator heap() {
  return {[](void*, std::size_t bytes) { return pool::allocate(bytes); },
          [](void*, void* memory, std::size_t) { pool::release(memory); }, nullptr};
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
