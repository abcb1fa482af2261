// SPDX-License-Identifier: Apache-2.0
// The format of recorded calls (docs/recordings.md), for those who write it and those who read it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "isobit/core/dtype.h"
#include "isobit/core/tensor_view.h"

namespace isobit::recording {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

inline constexpr std::string_view kMagic = "ISOBITRC";
inline constexpr std::uint32_t kVersion = 1;

enum class Part : std::uint32_t { call = 1, end = 2 };
enum class Value : std::uint8_t { real = 0, whole = 1 };

// FNV-1a of 64 bits.
class Hash {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes)
      value_ = (value_ ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

inline std::uint64_t hash_of(std::span<const std::byte> bytes) {
  Hash hash;
  hash.add(bytes);
  return hash.value();
}

inline std::int64_t elements_of(const TensorView& view) {
  std::int64_t count = 1;
  for (int i = 0; i < view.rank; ++i) count *= view.shape[static_cast<std::size_t>(i)];
  return count;
}

// Gives take(bytes) the elements in row-major order, in pieces that are adjacent in memory.
template <class Take>
void for_elements(const TensorView& view, Take take) {
  if (elements_of(view) == 0) return;
  const std::int64_t size = size_of(view.dtype);
  const auto last = static_cast<std::size_t>(view.rank - 1);
  const bool adjacent = view.strides[last] == 1 || view.shape[last] == 1;
  const std::int64_t steps = adjacent ? 1 : view.shape[last];
  const auto piece = static_cast<std::size_t>((adjacent ? view.shape[last] : 1) * size);
  std::array<std::int64_t, kMaxRank> index{};
  for (bool more = true; more;) {
    std::int64_t place = 0;
    for (std::size_t i = 0; i < last; ++i) place += index[i] * view.strides[i];
    for (std::int64_t i = 0; i < steps; ++i)
      take(std::span(
          static_cast<const std::byte*>(view.data) + (place + i * view.strides[last]) * size,
          piece));
    more = false;
    for (std::size_t i = last; i-- > 0 && !more;) {
      more = ++index[i] < view.shape[i];
      if (!more) index[i] = 0;
    }
  }
}

inline std::uint64_t hash_of(const TensorView& view) {
  Hash hash;
  for_elements(view, [&](std::span<const std::byte> bytes) { hash.add(bytes); });
  return hash.value();
}

}  // namespace isobit::recording
