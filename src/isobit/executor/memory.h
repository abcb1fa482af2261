// SPDX-License-Identifier: Apache-2.0
// The memory of an executed GPU: what a kernel may touch, byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace isobit::executor {

inline constexpr std::uintptr_t kSector = 32;

// Pages that come into being as they are touched, between pages that nobody may touch.
class Pages {
 public:
  explicit Pages(std::size_t bytes);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* begin() const { return begin_; }

 private:
  std::byte* begin_;
  std::size_t mapped_;
};

class Allocation {
 public:
  explicit Allocation(std::size_t bytes);
  // Somebody else's memory, which begins with a sector.
  Allocation(void* begin, std::size_t bytes);

  std::uintptr_t begin() const { return begin_; }
  std::uintptr_t end() const { return end_; }
  bool holds(std::uintptr_t at, std::uintptr_t bytes) const {
    return at >= begin_ && at <= end_ && bytes <= end_ - at;
  }

  // Whether a launch meets the sector for the first time, in loads or in stores.
  bool first_load(std::uintptr_t sector) { return first(loaded_, sector); }
  bool first_store(std::uintptr_t sector) { return first(stored_, sector); }
  void forget_sectors();

 private:
  bool first(std::vector<std::uint64_t>& seen, std::uintptr_t sector);

  std::unique_ptr<Pages> pages_;  // null where they are somebody else's
  std::uintptr_t begin_, end_;
  std::vector<std::uint64_t> loaded_, stored_;  // a bit for each sector, made at the first launch
};

// Global memory. What was given back is nobody's, until it is given out again.
class Memory {
 public:
  void* allocate(std::size_t bytes);
  // Has kernels reach memory of the caller's, until it is released. False where it does not begin
  // with a sector, or some of it is reached already.
  bool lend(void* begin, std::size_t bytes);
  // False where it was not allocated.
  bool release(void* pointer);
  // The allocation with this byte; null where there is none.
  Allocation* find(std::uintptr_t at) const;
  void forget_sectors();

 private:
  std::map<std::uintptr_t, std::unique_ptr<Allocation>> by_end_;
};

Memory& memory();

}  // namespace isobit::executor
