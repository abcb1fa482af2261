// SPDX-License-Identifier: Apache-2.0
// Launches a kernel on the emulator. A kernel is a value: what it needs, and its body.
#pragma once

#include <vector>

#include "isobit/core/error.h"
#include "isobit/core/machine.h"
#include "isobit/simt/host/device.h"
#include "isobit/simt/host/shared_memory.h"

namespace isobit::simt {

using Stream = void*;

inline constexpr Device kDevice = Device::emu;
inline constexpr std::int64_t kMostBlocks = 0x7fffffff;  // of a launch
// What the emulator passes for: a small Hopper, so that persistent kernels go round.
inline Gpu gpu() {
  return {.capability = host::kCapability,
          .multiprocessors = 2,
          .shared_bytes = kMostShared,
          .l2_bytes = 50 << 20};
}

// Deals out a block's shared memory, in the same order to the host, which counts, and to every
// thread.
class Carver {
 public:
  explicit Carver(std::byte* base = nullptr) : base_(base) {}

  template <class T>
  T* take(std::int64_t count, std::int64_t alignment = 16) {
    const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
    bytes_ = aligned(bytes_, alignment) + bytes;
    const std::int64_t offset = aligned(end_ + host::kRedZone, alignment);
    end_ = offset + bytes;
    if (base_ == nullptr) arrays_.push_back({offset, bytes});
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + offset);
  }

  std::int64_t bytes() const { return bytes_; }  // on a device, which has no red zones
  std::span<const host::Region> arrays() const { return arrays_; }

 private:
  static std::int64_t aligned(std::int64_t offset, std::int64_t alignment) {
    return (offset + alignment - 1) / alignment * alignment;
  }

  std::byte* base_;
  std::int64_t bytes_ = 0, end_ = 0;
  std::vector<host::Region> arrays_;
};

// A kernel without shared memory has operator()(); one with it has memory(carver), which takes its
// arrays, and operator()(memory).
template <class Kernel>
void launch(Stream stream, const LaunchShape& shape, const Kernel& kernel) {
  Carver counter;
  if constexpr (requires { kernel.memory(counter); }) kernel.memory(counter);
  if (shape.blocks < 1 || shape.blocks > kMostBlocks || shape.threads < 1 ||
      shape.threads > Kernel::kMostThreads || shape.cluster < 1 || shape.cluster > 16 ||
      shape.blocks % shape.cluster != 0 || counter.bytes() > kMostShared)
    throw DeviceError(text("a launch that no device takes: ", shape.blocks, " blocks of ",
                           shape.threads, " threads, clusters of ", shape.cluster, ", ",
                           counter.bytes(), " bytes of shared memory"));
  host::run({shape.blocks, shape.threads, shape.cluster, counter.arrays(), stream},
            [&](std::byte* shared) {
              if constexpr (requires { kernel.memory(counter); }) {
                Carver carver(shared);
                kernel(kernel.memory(carver));
              } else {
                kernel();
              }
            });
}

}  // namespace isobit::simt
