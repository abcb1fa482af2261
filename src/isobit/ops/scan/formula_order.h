// SPDX-License-Identifier: Apache-2.0
// The order of scans, version 1: the one place that says which combination comes first.
//
// Blocks of 512 elements, the first of which begins where the row or segment does. A block is 32
// groups of 16. L is the inclusive scan of a group by Sklansky's scheme; E the exclusive scan of
// the groups' totals, the inclusive one by the same scheme shifted by one; and C combines the
// totals of the blocks before, by adjacent pairs as core/order.h has it. The result is (C, E), L.
#pragma once

#include <cstdint>

#include "isobit/core/inline.h"

namespace isobit::scan {

inline constexpr int kGroup = 16, kGroups = 32, kBlock = kGroup * kGroups;
inline constexpr int kLevels = 48;  // of a tree of blocks: more elements than a call may have

// Upper half: after the last of the lower half, level by level.
template <class M, int kCount>
ISOBIT_INLINE void sklansky(typename M::Value (&values)[kCount]) {
  ISOBIT_UNROLL(8)
  for (int half = 1; half < kCount; half *= 2) ISOBIT_UNROLL(32)
  for (int i = 0; i < kCount; ++i)
    if (i & half) values[i] = M::combine(values[i / half * half - 1], values[i]);
}

// The same of values that stand in memory.
template <class M, int kCount>
ISOBIT_INLINE void sklansky_in_memory(typename M::Value (&values)[kCount]) {
  ISOBIT_NO_UNROLL
  for (int half = 1; half < kCount; half *= 2) ISOBIT_NO_UNROLL
  for (int first = half; first < kCount; first += 2 * half) {
    const typename M::Value before = values[first - 1];
    ISOBIT_NO_UNROLL
    for (int i = first; i < first + half; ++i) values[i] = M::combine(before, values[i]);
  }
}

// The totals of what came before, as a binary counter holds its ones: a node of 2^k blocks at k.
template <class M>
class Tree {
 public:
  using Carry = typename M::Carry;

  ISOBIT_INLINE Tree() {}
  ISOBIT_INLINE Tree(const Tree& other) { *this = other; }
  ISOBIT_INLINE Tree& operator=(const Tree& other) {
    blocks_ = other.blocks_;
    for (int at = 0; blocks_ >> at != 0; ++at) nodes_[at] = other.nodes_[at];
    return *this;
  }

  // A node of 2^level blocks, to which those before it are a multiple.
  ISOBIT_INLINE void push(Carry node, int level = 0) {
    int at = level;
    for (; blocks_ >> at & 1; ++at) node = M::join(nodes_[at], node);
    nodes_[at] = node;
    blocks_ += std::int64_t{1} << level;
  }

  // All of them, if they are 2^level blocks.
  ISOBIT_INLINE const Carry& node(int level) const { return nodes_[level]; }
  ISOBIT_INLINE Carry carry() const {
    Carry result = M::carry(M::neutral());
    bool first = true;
    for (int at = 0; blocks_ >> at != 0; ++at)
      if (blocks_ >> at & 1) {
        result = first ? M::join(result, nodes_[at]) : M::join(nodes_[at], result);
        first = false;
      }
    return result;
  }

 private:
  std::int64_t blocks_ = 0;
  Carry nodes_[kLevels];
};

}  // namespace isobit::scan
