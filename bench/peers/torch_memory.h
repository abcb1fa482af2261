// SPDX-License-Identifier: Apache-2.0
// Counts what PyTorch's CPU operators allocate. What libraries below them allocate for themselves,
// such as MKL for its packed matrices, does not pass through PyTorch's allocator and is not
// counted.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "bench/peers/adapter.h"

namespace isobit::peers {

// Stands before PyTorch's allocator while it lives. Blocks may be older, or outlive it.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() {
    inner() = c10::GetCPUAllocator();
    counts() = {};
    c10::SetCPUAllocator(this, kPriority);
  }
  ~CountingAllocator() override { c10::SetCPUAllocator(inner(), kPriority); }
  CountingAllocator(const CountingAllocator&) = delete;
  CountingAllocator& operator=(const CountingAllocator&) = delete;

  // A block is its own context, as raw_allocate() wants it.
  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr block = inner()->allocate(bytes);
    const c10::Device device = block.device();
    void* const data = block.release_context();
    if (data == nullptr) return {nullptr, device};
    const std::lock_guard lock(mutex());
    sizes()[data] = static_cast<std::int64_t>(bytes);
    counts().now += static_cast<std::int64_t>(bytes);
    counts().most = std::max(counts().most, counts().now);
    return {data, data, release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }

  static std::int64_t most() { return counts().most; }

 private:
  static constexpr std::uint8_t kPriority = 255;  // above all others'

  struct Counts {
    std::int64_t now = 0, most = 0;
  };
  // Deleters are functions without a context of their own.
  static Counts& counts() {
    static Counts counts;
    return counts;
  }
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static c10::Allocator*& inner() {
    static c10::Allocator* inner = nullptr;
    return inner;
  }
  static std::unordered_map<void*, std::int64_t>& sizes() {
    static std::unordered_map<void*, std::int64_t> sizes;
    return sizes;
  }
  static void release(void* data) {
    {
      const std::lock_guard lock(mutex());
      if (const auto block = sizes().find(data); block != sizes().end()) {
        counts().now -= block->second;
        sizes().erase(block);
      }
    }
    inner()->raw_deleter()(data);
  }
};

inline std::int64_t most_allocated(const Call& call) {
  const CountingAllocator counting;
  try {
    call();
  } catch (const std::exception&) { return -1; }
  return counting.most();
}

}  // namespace isobit::peers
