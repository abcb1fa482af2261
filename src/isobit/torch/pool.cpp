// SPDX-License-Identifier: Apache-2.0
// A few lists of blocks by size under one lock, which a fork finds free.
#include "isobit/torch/pool.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <new>

namespace isobit::torch::pool {
namespace {

constexpr std::int64_t kHugePage = 2 << 20;
constexpr std::int64_t kSmallest = 1 << 20;  // below, pages cost little beside a call

std::int64_t machine_memory() {
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

struct Pool {
  std::mutex mutex;
  std::multimap<std::int64_t, void*> waiting;  // by size
  Use use{};
  std::atomic<std::int64_t> limit = machine_memory() / 8;
};

// Never destroyed: tensors may die after everything else.
Pool& pool() {
  static Pool* const pool = [] {
    auto* made = new Pool;
    pthread_atfork([] { torch::pool::pool().mutex.lock(); },
                   [] { torch::pool::pool().mutex.unlock(); },
                   [] { torch::pool::pool().mutex.unlock(); });
    return made;
  }();
  return *pool;
}

// Made when the library is loaded: a child forked while a thread makes it would wait for ever.
[[maybe_unused]] const Pool& kMadeAtLoad = pool();

// Sizes that differ little share blocks.
std::int64_t rounded(std::int64_t bytes) {
  std::int64_t step = bytes < 8 * kHugePage ? 64 << 10 : kHugePage;
  while (step * 16 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

void* map(std::int64_t bytes) {
  const std::size_t wanted = static_cast<std::size_t>(bytes), slack = kHugePage;
  void* memory =
      mmap(nullptr, wanted + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* start = static_cast<std::byte*>(memory);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(start) % slack;
  if (before > 0) munmap(start, before);
  munmap(start + before + wanted, slack - before);
  madvise(start + before, wanted, MADV_HUGEPAGE);  // where the system has none, small pages do
  return start + before;
}

// Returns the largest blocks to the system until no more than `most` wait.
void shrink(Pool& pool, std::int64_t most) {
  while (pool.use.waiting > most) {
    const auto largest = std::prev(pool.waiting.end());
    munmap(largest->second, static_cast<std::size_t>(largest->first));
    pool.use.waiting -= largest->first;
    pool.waiting.erase(largest);
  }
}

}  // namespace

void* take(std::int64_t bytes) {
  Pool& here = pool();
  if (bytes < kSmallest || here.limit == 0) return nullptr;
  const std::int64_t size = rounded(bytes);
  const std::lock_guard lock(here.mutex);
  void* block = nullptr;
  if (const auto found = here.waiting.find(size); found != here.waiting.end()) {
    block = found->second;
    here.waiting.erase(found);
    here.use.waiting -= size;
  } else {
    block = map(size);
    if (block == nullptr) {
      shrink(here, 0);
      block = map(size);
    }
    if (block == nullptr) return nullptr;
  }
  here.use.lent += size;
  return block;
}

void give(void* block, std::int64_t bytes) {
  Pool& here = pool();
  const std::int64_t size = rounded(bytes);
  const std::lock_guard lock(here.mutex);
  here.use.lent -= size;
  try {
    here.waiting.emplace(size, block);
    here.use.waiting += size;
    shrink(here, here.limit);
  } catch (const std::bad_alloc&) { munmap(block, static_cast<std::size_t>(size)); }
}

void set_limit(std::int64_t bytes) {
  Pool& here = pool();
  const std::lock_guard lock(here.mutex);
  here.limit = std::max<std::int64_t>(bytes, 0);
  shrink(here, here.limit);
}

std::int64_t limit() { return pool().limit; }

void empty() {
  Pool& here = pool();
  const std::lock_guard lock(here.mutex);
  shrink(here, 0);
}

Use use() {
  Pool& here = pool();
  const std::lock_guard lock(here.mutex);
  return here.use;
}

}  // namespace isobit::torch::pool
