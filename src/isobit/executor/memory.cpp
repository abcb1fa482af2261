// SPDX-License-Identifier: Apache-2.0
// Allocations begin at 256 bytes, as CUDA's do, and end where they were asked to end: what lies
// between the end and the next page belongs to nobody, and is never touched. Those of several pages
// lie across a multiple of 2^32, so that arithmetic of addresses that loses a carry is found.
#include "isobit/executor/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace isobit::executor {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uintptr_t kCarry = std::uintptr_t{1} << 32;
constexpr std::size_t kPoisoned = std::size_t{64} << 20;  // what is larger begins as zeros
constexpr int kPoison = 0xff;                             // a NaN in every type

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

Pages::Pages(std::size_t bytes) : mapped_(whole_pages(bytes) + 2 * kPage) {
  const std::size_t reserved = mapped_ + kCarry;
  void* all =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  // The pages whose middle is a multiple of 2^32; what was reserved before and behind goes back.
  const auto from = reinterpret_cast<std::uintptr_t>(all);
  const std::size_t half = mapped_ / kPage / 2 * kPage;
  const std::uintptr_t middle = (from + half + kCarry - 1) / kCarry * kCarry;
  const std::size_t before = middle - half - from;
  const std::size_t behind = reserved - before - mapped_;
  auto* mapped = static_cast<std::byte*>(all) + before;
  if (before > 0) munmap(all, before);
  if (behind > 0) munmap(mapped + mapped_, behind);
  begin_ = mapped + kPage;
  if (mprotect(begin_, mapped_ - 2 * kPage, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
}

Pages::~Pages() { munmap(begin_ - kPage, mapped_); }

Allocation::Allocation(std::size_t bytes)
    : pages_(std::make_unique<Pages>(std::max<std::size_t>(bytes, 1))),
      begin_(reinterpret_cast<std::uintptr_t>(pages_->begin())),
      end_(begin_ + bytes) {
  if (bytes <= kPoisoned) std::memset(pages_->begin(), kPoison, bytes);
}

Allocation::Allocation(void* begin, std::size_t bytes)
    : begin_(reinterpret_cast<std::uintptr_t>(begin)), end_(begin_ + bytes) {}

bool Allocation::first(std::vector<std::uint64_t>& seen, std::uintptr_t sector) {
  if (seen.empty()) seen.resize((end_ - begin_) / kSector / 64 + 1);
  const std::uintptr_t index = sector - begin_ / kSector;
  std::uint64_t& word = seen[index / 64];
  const std::uint64_t bit = std::uint64_t{1} << (index % 64);
  const bool is_first = (word & bit) == 0;
  word |= bit;
  return is_first;
}

void Allocation::forget_sectors() {
  loaded_.clear();
  stored_.clear();
}

void* Memory::allocate(std::size_t bytes) {
  auto made = std::make_unique<Allocation>(bytes);
  void* begin = reinterpret_cast<void*>(made->begin());
  // An allocation of no bytes has none, but its address is its own.
  by_end_.emplace(std::max(made->end(), made->begin() + 1), std::move(made));
  return begin;
}

bool Memory::lend(void* begin, std::size_t bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  const auto next = by_end_.upper_bound(at);
  if (at % kSector != 0 || (next != by_end_.end() && next->second->begin() < at + bytes))
    return false;
  auto lent = std::make_unique<Allocation>(begin, bytes);
  return by_end_.emplace(at + std::max<std::size_t>(bytes, 1), std::move(lent)).second;
}

bool Memory::release(void* pointer) {
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  const auto found = by_end_.upper_bound(at);
  if (found == by_end_.end() || found->second->begin() != at) return false;
  by_end_.erase(found);
  return true;
}

Allocation* Memory::find(std::uintptr_t at) const {
  const auto found = by_end_.upper_bound(at);
  return found != by_end_.end() && found->second->holds(at, 1) ? found->second.get() : nullptr;
}

void Memory::forget_sectors() {
  for (const auto& [end, allocation] : by_end_) allocation->forget_sectors();
}

Memory& memory() {
  static Memory* const kMemory = new Memory;  // outlives whoever still gives memory back
  return *kMemory;
}

}  // namespace isobit::executor
