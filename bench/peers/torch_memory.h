// SPDX-License-Identifier: Apache-2.0
// Counts what PyTorch's CPU operators allocate. What libraries below them allocate, such as MKL for
// its packed matrices, does not pass through PyTorch's allocator and is not counted.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "bench/peers/adapter.h"

namespace isobit::peers {

// Stands before PyTorch's allocator while it lives. Blocks may outlive it, so they share its
// counts.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : inner_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~CountingAllocator() override { c10::SetCPUAllocator(inner_, kPriority); }
  CountingAllocator(const CountingAllocator&) = delete;
  CountingAllocator& operator=(const CountingAllocator&) = delete;

  c10::DataPtr allocate(std::size_t bytes) override {
    auto block = std::make_unique<Block>(inner_->allocate(bytes), counts_, bytes);
    void* const data = block->memory.get();
    const c10::Device device = block->memory.device();
    return {data, block.release(), [](void* made) { delete static_cast<Block*>(made); }, device};
  }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }

  std::int64_t most() const { return counts_->most; }

 private:
  static constexpr std::uint8_t kPriority = 255;  // above all others'

  struct Counts {
    std::mutex mutex;
    std::int64_t now = 0, most = 0;

    void add(std::int64_t bytes) {
      const std::lock_guard lock(mutex);
      now += bytes;
      most = std::max(most, now);
    }
  };

  struct Block {
    Block(c10::DataPtr taken, std::shared_ptr<Counts> shared, std::size_t size)
        : memory(std::move(taken)),
          counts(std::move(shared)),
          bytes(static_cast<std::int64_t>(size)) {
      counts->add(bytes);
    }
    ~Block() { counts->add(-bytes); }

    c10::DataPtr memory;
    std::shared_ptr<Counts> counts;
    std::int64_t bytes;
  };

  c10::Allocator* inner_;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

inline std::int64_t most_allocated(const Call& call) {
  const CountingAllocator counting;
  call();
  return counting.most();
}

}  // namespace isobit::peers
