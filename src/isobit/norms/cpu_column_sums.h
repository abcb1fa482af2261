// SPDX-License-Identifier: Apache-2.0
// Sums over rows, a whole vector of columns at a time, in the tree of core/order.h.
#pragma once

#include "isobit/core/array_tree.h"
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

// The pair tree of order.h over such arrays.
class ColumnTree {
 public:
  ColumnTree(const Tools& tools, const SumsArray& sums, std::byte* memory)
      : tools_(tools), sums_(sums), tree_(memory, memory + sums.bytes(), sums.bytes()) {}

  // How many arrays the tree over so many runs needs.
  static std::int64_t arrays(std::int64_t runs) { return ArrayTree::arrays(runs); }

  // Where the next run's sums are to be written before push().
  std::byte* next() const { return tree_.next(); }
  void push() { tree_.push(Add{tools_, sums_}); }
  // The total, or null where nothing was pushed.
  std::byte* total() { return tree_.total(Add{tools_, sums_}); }

 private:
  struct Add {
    const Tools& tools;
    const SumsArray& sums;
    void operator()(std::byte* into, const std::byte* from) const { sums.add(tools, into, from); }
  };

  const Tools& tools_;
  const SumsArray& sums_;
  ArrayTree tree_;
};

}  // namespace isobit::norms
