// SPDX-License-Identifier: Apache-2.0
// A workspace cut into pieces.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isobit {

// Cuts memory into pieces of whole cache lines; without memory it only counts.
class Pieces {
 public:
  explicit Pieces(std::byte* memory = nullptr) : memory_(memory) {}
  std::byte* take(std::int64_t bytes) {
    std::byte* piece = memory_ == nullptr ? nullptr : memory_ + taken_;
    taken_ += (bytes + 63) / 64 * 64;
    return piece;
  }
  std::size_t taken() const { return static_cast<std::size_t>(taken_); }

 private:
  std::byte* memory_;
  std::int64_t taken_ = 0;
};

}  // namespace isobit
