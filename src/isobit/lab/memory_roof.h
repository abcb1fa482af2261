// SPDX-License-Identifier: Apache-2.0
// What memory gives, the yardstick of speed: a copy, for calls that only move bytes, and a sweep,
// for those that write next to nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isobit/dispatch/device_library.h"
#include "isobit/lab/array.h"
#include "isobit/lab/timing.h"

namespace isobit::lab {

// Moves `bytes` in all: it reads half of them and writes half.
class Copy {
 public:
  explicit Copy(double bytes);

  void plain(int threads) const;      // memcpy
  void streaming(int threads) const;  // stores that bypass the caches

  // The kinds of copying among which the fastest is to be found. Waking a second thread costs as
  // much as copying about a megabyte.
  std::vector<TimedCall> timed_calls(int threads) const;

 private:
  std::int64_t half_;  // bytes
  Array from_, to_;
};

// Reads arrays and adds up what they hold. They are a call's own: what other memory costs depends
// on what else lies in the caches.
class Sweep {
 public:
  explicit Sweep(std::vector<std::span<const std::byte>> arrays);

  double bytes() const;
  // As of a copy.
  std::vector<TimedCall> timed_calls(int threads) const;

 private:
  void sum(int threads) const;

  std::vector<std::span<const std::byte>> arrays_;
};

// A copy within a device's memory, by its own copy.
class DeviceCopy {
 public:
  DeviceCopy(double bytes, const DeviceLibrary& library);
  ~DeviceCopy();
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  TimedCall timed_call() const;

 private:
  const DeviceMemory& memory_;
  std::size_t half_;
  void *from_, *to_;
};

}  // namespace isobit::lab
