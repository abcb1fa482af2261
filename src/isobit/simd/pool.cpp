// SPDX-License-Identifier: Apache-2.0
// Ranges of memory under one lock, which a fork finds free. A block is cut from the smallest range
// that holds it; ranges that touch each other are one.
#include "isobit/simd/pool.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <utility>

namespace isobit::pool {
namespace {

constexpr std::int64_t kHugePage = 2 << 20;
constexpr std::int64_t kMapped = 512 * kHugePage;  // at a time: what is never written costs nothing
constexpr std::int64_t kSmallest = 256 << 10;      // below, pages cost little beside a call
constexpr std::int64_t kStep = 64 << 10;           // sizes of ranges are multiples of it
// AddressSanitizer watches over the C library's memory alone.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kWatched = true;
#elif defined(__has_feature)
constexpr bool kWatched = __has_feature(address_sanitizer);
#else
constexpr bool kWatched = false;
#endif
constexpr std::int64_t kLimit = kWatched ? 0 : 64 << 20;

std::int64_t rounded(std::int64_t bytes, std::int64_t step) {
  return (bytes + step - 1) / step * step;
}

void unmap(std::byte* begin, std::int64_t bytes) {
  if (bytes > 0) munmap(begin, static_cast<std::size_t>(bytes));
}

// Whole huge pages; null where the system has no more.
std::byte* map(std::int64_t bytes) {
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

// Ranges that were blocks, by where they begin and by size. A node of each container moves with a
// range, so that only add() allocates.
class Ranges {
 public:
  // Joins it with the ranges that touch it; without memory for that, the system gets them all.
  void add(std::byte* begin, std::int64_t bytes) {
    bytes_ += bytes;
    auto next = by_place_.upper_bound(begin);
    if (next != by_place_.begin()) {
      const auto [before, size] = *std::prev(next);
      if (before + size == begin) {
        begin = before;
        bytes += size;
        forget(std::prev(next));
      }
    }
    if (next != by_place_.end() && begin + bytes == next->first) {
      bytes += next->second;
      forget(next);
    }
    try {
      by_place_.emplace(begin, bytes);
      by_size_.emplace(bytes, begin);
    } catch (const std::bad_alloc&) {
      by_place_.erase(begin);
      unmap(begin, bytes);
      bytes_ -= bytes;
    }
  }

  // The front of the smallest that has so many bytes, or null.
  std::byte* cut(std::int64_t bytes) {
    const auto found = by_size_.lower_bound({bytes, nullptr});
    if (found == by_size_.end()) return nullptr;
    std::byte* const begin = found->second;
    replace(found, begin + bytes, found->first - bytes);
    bytes_ -= bytes;
    return begin;
  }

  // The whole one that ends here, if there is one.
  std::pair<std::byte*, std::int64_t> cut_before(const std::byte* end) {
    const auto after = by_place_.upper_bound(const_cast<std::byte*>(end));
    if (after == by_place_.begin()) return {};
    const auto last = std::prev(after);
    const std::pair<std::byte*, std::int64_t> range = *last;
    if (range.first + range.second != end) return {};
    forget(last);
    bytes_ -= range.second;
    return range;
  }

  // Returns ends of the largest to the system until no more than `most` bytes are left.
  void shrink(std::int64_t most) {
    while (bytes_ > most) {
      const auto largest = std::prev(by_size_.end());
      const auto [size, begin] = *largest;
      const std::int64_t rest = size - std::min(size, rounded(bytes_ - most, kStep));
      replace(largest, begin, rest);
      unmap(begin + rest, size - rest);
      bytes_ -= size - rest;
    }
  }

  std::int64_t bytes() const { return bytes_; }

 private:
  using ByPlace = std::map<std::byte*, std::int64_t>;
  using BySize = std::set<std::pair<std::int64_t, std::byte*>>;

  void forget(ByPlace::iterator range) {
    by_size_.erase({range->second, range->first});
    by_place_.erase(range);
  }
  // Puts what is left of a range in its place.
  void replace(BySize::iterator range, std::byte* begin, std::int64_t bytes) {
    auto place = by_place_.extract(range->second);
    auto size = by_size_.extract(range);
    if (bytes == 0) return;
    place.key() = begin;
    place.mapped() = bytes;
    size.value() = {bytes, begin};
    by_place_.insert(std::move(place));
    by_size_.insert(std::move(size));
  }

  ByPlace by_place_;
  BySize by_size_;
  std::int64_t bytes_ = 0;
};

struct Pool {
  std::mutex mutex;
  Ranges waiting;
  // Never written yet: what waits is taken before.
  std::byte* fresh = nullptr;
  std::int64_t fresh_bytes = 0;
  std::int64_t lent = 0;
  std::atomic<std::int64_t> limit = kLimit;

  bool map_fresh(std::int64_t bytes) {
    drop_fresh();
    const std::int64_t whole = rounded(bytes, kHugePage);
    for (const std::int64_t size : {std::max(whole, kMapped), whole})
      if (std::byte* const begin = map(size); begin != nullptr) {
        fresh = begin;
        fresh_bytes = size;
        return true;
      }
    return false;
  }
  void drop_fresh() {
    unmap(fresh, fresh_bytes);
    fresh_bytes = 0;
  }

  std::byte* take(std::int64_t bytes) {
    if (std::byte* const found = waiting.cut(bytes); found != nullptr) return found;
    // What waits right before fresh memory is taken with as much of it as is missing.
    if (fresh_bytes > 0) {
      if (const auto [begin, size] = waiting.cut_before(fresh); begin != nullptr) {
        fresh = begin;
        fresh_bytes += size;
      }
    }
    if (fresh_bytes < bytes && !map_fresh(bytes)) {
      waiting.shrink(0);
      if (!map_fresh(bytes)) return nullptr;
    }
    std::byte* const begin = fresh;
    fresh += bytes;
    fresh_bytes -= bytes;
    return begin;
  }
};

// Never destroyed: tensors may die after everything else.
Pool& pool() {
  static Pool* const pool = [] {
    auto* made = new Pool;
    pthread_atfork([] { pool::pool().mutex.lock(); }, [] { pool::pool().mutex.unlock(); },
                   [] { pool::pool().mutex.unlock(); });
    return made;
  }();
  return *pool;
}

// Made when the library is loaded: a child forked while a thread makes it would wait for ever.
[[maybe_unused]] const Pool& kMadeAtLoad = pool();

// Before what allocate() returns.
struct Head {
  void* start;
  std::int64_t bytes;  // of a block; 0 for the C library's memory
};
constexpr std::size_t kLine = 64;

// Sizes that differ little share blocks.
std::int64_t size_of_block(std::int64_t bytes) {
  std::int64_t step = kStep;
  while (step < kHugePage && step * 16 < bytes) step *= 2;
  return rounded(bytes, step);
}

}  // namespace

void* take(std::int64_t bytes) {
  Pool& here = pool();
  if (bytes < kSmallest || here.limit == 0) return nullptr;
  const std::int64_t size = size_of_block(bytes);
  const std::lock_guard lock(here.mutex);
  void* const block = here.take(size);
  if (block != nullptr) here.lent += size;
  return block;
}

void give(void* block, std::int64_t bytes) {
  Pool& here = pool();
  const std::int64_t size = size_of_block(bytes);
  const std::lock_guard lock(here.mutex);
  here.lent -= size;
  here.waiting.add(static_cast<std::byte*>(block), size);
  here.waiting.shrink(here.limit);
}

void* allocate(std::size_t bytes) {
  const std::size_t with_head = bytes + 2 * kLine;
  void* start = take(static_cast<std::int64_t>(with_head));
  const bool is_block = start != nullptr;
  if (!is_block) start = std::malloc(with_head);
  if (start == nullptr) return nullptr;
  const auto past = reinterpret_cast<std::uintptr_t>(start) % kLine;
  auto* const memory = static_cast<std::byte*>(start) + 2 * kLine - past;
  new (memory - kLine) Head{start, is_block ? static_cast<std::int64_t>(with_head) : 0};
  return memory;
}

void release(void* memory) {
  const Head head = *std::launder(reinterpret_cast<Head*>(static_cast<std::byte*>(memory) - kLine));
  if (head.bytes > 0)
    give(head.start, head.bytes);
  else
    std::free(head.start);
}

void set_limit(std::int64_t bytes) {
  Pool& here = pool();
  const std::lock_guard lock(here.mutex);
  here.limit = std::max<std::int64_t>(bytes, 0);
  here.waiting.shrink(here.limit);
}

std::int64_t limit() { return pool().limit; }

void empty() {
  Pool& here = pool();
  const std::lock_guard lock(here.mutex);
  here.waiting.shrink(0);
  here.drop_fresh();
}

Use use() {
  Pool& here = pool();
  const std::lock_guard lock(here.mutex);
  return {here.lent, here.waiting.bytes()};
}

}  // namespace isobit::pool
