// SPDX-License-Identifier: Apache-2.0
// Sums over rows, a whole vector of columns at a time, in the tree of core/order.h.
#pragma once

#include <bit>

#include "isobit/core/order.h"
#include "isobit/norms/cpu_kernels.h"

namespace isobit::norms {

// The sums of some columns: weight's, then bias's, each padded to whole cache lines.
class SumsArray {
 public:
  SumsArray(DType real, std::int64_t cols)
      : real_(real), cols_(cols), half_((cols * size_of(real) + 63) / 64 * 64) {}

  std::int64_t bytes() const { return 2 * half_; }
  ColumnSums sums(std::byte* array, bool fresh) const { return {array, array + half_, fresh}; }
  // The bias's sums of an array.
  std::byte* bias(std::byte* array) const { return array + half_; }

  void add(const Tools& tools, std::byte* into, const std::byte* from) const {
    tools.add(real_, into, from, cols_);
    tools.add(real_, into + half_, from + half_, cols_);
  }

 private:
  DType real_;
  std::int64_t cols_, half_;
};

// The pair tree of order.h over such arrays: what is pushed is folded as soon as its partner is
// there.
class ColumnTree {
 public:
  ColumnTree(const Tools& tools, const SumsArray& sums, std::byte* memory)
      : tools_(tools), sums_(sums), memory_(memory) {}

  // How many arrays the tree over so many runs needs.
  static std::int64_t arrays(std::int64_t runs) {
    return std::bit_width(static_cast<std::uint64_t>(runs)) + 1;
  }

  // Where the next run's sums are to be written before push().
  std::byte* next() { return at(depth_); }

  void push() {
    ++depth_;
    for (std::int64_t count = count_++; count & 1; count >>= 1) fold();
  }

  // The total, or null where nothing was pushed.
  std::byte* total() {
    while (depth_ > 1) fold();
    return depth_ == 1 ? memory_ : nullptr;
  }

 private:
  std::byte* at(std::int64_t i) { return memory_ + i * sums_.bytes(); }
  void fold() {
    --depth_;
    sums_.add(tools_, at(depth_ - 1), at(depth_));
  }

  const Tools& tools_;
  const SumsArray& sums_;
  std::byte* memory_;
  std::int64_t depth_ = 0, count_ = 0;
};

}  // namespace isobit::norms
