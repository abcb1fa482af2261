// SPDX-License-Identifier: Apache-2.0
// The tree of core/order.h: over a few sums in registers, and over any number that come one after
// the other.
#pragma once

#include <cstdint>

#include "isobit/simt/simt.h"

namespace isobit::tile {

// Adjacent pairs, level by level. Zeros in the place of what is not there change no sum but the
// sign of a zero, which the total repairs.
template <int kCount, class Real>
ISOBIT_DEVICE Real pairs(const Real (&sums)[kCount]) {
  Real level[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) level[i] = sums[i];
#pragma unroll
  for (int step = 1; step < kCount; step *= 2)
#pragma unroll
    for (int i = 0; i + step < kCount; i += 2 * step) level[i] += level[i + step];
  return level[0] + Real(0);
}

// What order::PairTree holds, for a thread of a GPU. Which sums wait is known at run time only, and
// registers have no index: so the sums stand in memory, in an array of their own, for beside them
// the count would stand there too. The one that waits for its neighbour, of most trees the only
// one, is in a register.
inline constexpr int kMostWaiting = 55;
template <class T>
class PairTree {
 public:
  // Of `waiting` there are kMostWaiting.
  ISOBIT_DEVICE explicit PairTree(T* waiting) : waiting_(waiting) {}

  ISOBIT_DEVICE void push(T sum) {
    std::int64_t count = count_++;
    if (!(count & 1)) {
      first_ = sum;
      return;
    }
    sum = first_ + sum;
    int level = 0;
#pragma unroll 1
    for (count >>= 1; count & 1; count >>= 1) sum = waiting_[level++] + sum;
    waiting_[level] = sum;
  }

  ISOBIT_DEVICE T total() const {
    T sum = T(0);
    if (count_ & 1) sum += first_;
    int level = 0;
#pragma unroll 1
    for (std::int64_t count = count_ >> 1; count != 0; ++level, count >>= 1)
      if (count & 1) sum = waiting_[level] + sum;
    return sum;
  }

 private:
  T* waiting_;
  T first_ = T(0);
  std::int64_t count_ = 0;
};

}  // namespace isobit::tile
