// SPDX-License-Identifier: Apache-2.0
// Plain copies, the yardstick of speed: what the memory gives to a call that only moves bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "isobit/lab/array.h"

namespace isobit::lab {

// Moves `bytes` in all: it reads half of them and writes half.
class Copy {
 public:
  explicit Copy(double bytes);

  void plain(int threads) const;      // memcpy
  void streaming(int threads) const;  // stores that bypass the caches

  // The ways of copying among which the fastest is to be found. Waking a second thread costs as
  // much as copying about a megabyte.
  std::vector<std::function<void()>> runners(int threads) const;

 private:
  std::int64_t half_;  // bytes
  Array from_, to_;
};

}  // namespace isobit::lab
