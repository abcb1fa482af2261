// SPDX-License-Identifier: Apache-2.0
// The pair tree of order.h over whole arrays: what is pushed is folded as soon as its partner is
// there.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace isobit {

class ArrayTree {
 public:
  // Arrays of `bytes` each: the first, in which the total comes to stand, and all others.
  ArrayTree(std::byte* first, std::byte* others, std::int64_t bytes)
      : first_(first), others_(others), bytes_(bytes) {}

  // How many arrays the tree over so many needs, the first among them.
  static std::int64_t arrays(std::int64_t pushed) {
    return pushed == 0 ? 0 : std::bit_width(static_cast<std::uint64_t>(pushed - 1)) + 1;
  }

  // What is to be written before push().
  std::byte* next() const { return at(depth_); }

  // add(into, from) adds an array to another.
  template <class Add>
  void push(const Add& add) {
    ++depth_;
    for (std::int64_t count = count_++; count & 1; count >>= 1) fold(add);
  }

  // The total, or null where nothing was pushed.
  template <class Add>
  std::byte* total(const Add& add) {
    while (depth_ > 1) fold(add);
    return depth_ == 1 ? first_ : nullptr;
  }

 private:
  std::byte* at(std::int64_t i) const { return i == 0 ? first_ : others_ + (i - 1) * bytes_; }
  template <class Add>
  void fold(const Add& add) {
    --depth_;
    add(at(depth_ - 1), at(depth_));
  }

  std::byte *first_, *others_;
  std::int64_t bytes_;
  std::int64_t depth_ = 0, count_ = 0;
};

}  // namespace isobit
