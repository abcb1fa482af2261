// SPDX-License-Identifier: Apache-2.0
// See shared_memory.h. AddressSanitizer, where it is linked, finds an access as it happens; without
// it a write is found when the block ends.
#include "isobit/simt/host/shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "isobit/core/error.h"

extern "C" {
[[gnu::weak]] void __asan_poison_memory_region(const volatile void*, std::size_t);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void*, std::size_t);
}

namespace isobit::simt::host {
namespace {

constexpr std::byte kUnwritten{0xff}, kOutside{0xfb};
std::vector<std::byte*> unused;

std::int64_t end_of(std::span<const Region> arrays) {
  return arrays.empty() ? 0 : arrays.back().offset + arrays.back().bytes + kRedZone;
}

// Calls visit(begin, end) for everything between the arrays.
template <class Visit>
void for_each_gap(std::span<const Region> arrays, const Visit& visit) {
  std::int64_t at = 0;
  for (const Region& array : arrays) {
    visit(at, array.offset);
    at = array.offset + array.bytes;
  }
  visit(at, end_of(arrays));
}

}  // namespace

std::byte* take_shared_memory(std::span<const Region> arrays) {
  std::byte* memory;
  if (unused.empty()) {
    void* mapped = mmap(nullptr, kSharedArena, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    memory = static_cast<std::byte*>(mapped);
  } else {
    memory = unused.back();
    unused.pop_back();
  }
  std::memset(memory, static_cast<int>(kUnwritten), end_of(arrays));
  for_each_gap(arrays, [&](std::int64_t begin, std::int64_t end) {
    std::memset(memory + begin, static_cast<int>(kOutside), end - begin);
  });
  if (__asan_poison_memory_region) {
    __asan_poison_memory_region(memory, kSharedArena);
    for (const Region& array : arrays)
      __asan_unpoison_memory_region(memory + array.offset, array.bytes);
  }
  return memory;
}

void give_back_shared_memory(std::byte* memory) {
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(memory, kSharedArena);
  unused.push_back(memory);
}

std::string written_outside(const std::byte* memory, std::span<const Region> arrays,
                            std::int64_t block) {
  if (__asan_poison_memory_region) return {};  // it would have ended the process
  std::string found;
  for_each_gap(arrays, [&](std::int64_t begin, std::int64_t end) {
    const auto* at =
        std::find_if(memory + begin, memory + end, [](std::byte byte) { return byte != kOutside; });
    if (at == memory + end || !found.empty()) return;
    std::int64_t before = -1;
    for (const Region& array : arrays) before += array.offset + array.bytes <= begin;
    found = before < 0 ? text("block ", block, " wrote before its first shared array")
                       : text("block ", block, " wrote ", at - (memory + begin),
                              " bytes behind the end of shared array ", before);
  });
  return found;
}

}  // namespace isobit::simt::host
