// SPDX-License-Identifier: Apache-2.0
// Choices made by bytes, a fuzzer's or random ones. Once they run out every choice is the first, so
// that first choices should be ordinary ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace isobit::fuzz {

class Bytes {
 public:
  explicit Bytes(std::span<const std::uint8_t> bytes) : left_(bytes) {}

  template <class T>
  T value() {
    T result{};
    const std::size_t count = std::min(sizeof result, left_.size());
    if (count > 0) std::memcpy(&result, left_.data(), count);
    left_ = left_.subspan(count);
    return result;
  }
  // One of [0, count), count at most 256.
  std::size_t below(std::size_t count) { return value<std::uint8_t>() % count; }
  bool yes() { return value<std::uint8_t>() & 1; }
  template <class T, std::size_t kCount>
  T one_of(const T (&values)[kCount]) {
    return values[below(kCount)];
  }

 private:
  std::span<const std::uint8_t> left_;
};

}  // namespace isobit::fuzz
