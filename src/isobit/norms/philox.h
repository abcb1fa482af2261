// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10: random words that are a function of a key and a counter, so that a mask needs no
// memory and no order.
#pragma once

#include <array>
#include <cstdint>

#include "isobit/core/inline.h"

namespace isobit::norms {

// Four words for a counter of 128 bits under a key of 64.
ISOBIT_INLINE std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                  std::uint64_t key) {
  auto low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t second = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(second >> 32) ^ counter[1] ^ low,
               static_cast<std::uint32_t>(second),
               static_cast<std::uint32_t>(first >> 32) ^ counter[3] ^ high,
               static_cast<std::uint32_t>(first)};
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return counter;
}

// The words of columns 4 * group to 4 * group + 3 of a row.
ISOBIT_INLINE std::array<std::uint32_t, 4> dropout_words(std::uint64_t seed, std::int64_t row,
                                                         std::int64_t group) {
  return philox({static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32),
                 static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(row >> 32)},
                seed);
}

// Words below this are dropped: floor(p * 2^32).
ISOBIT_INLINE std::uint32_t dropout_threshold(double p) {
  return static_cast<std::uint32_t>(p * 0x1p32);
}

// What is kept is multiplied by this.
template <class Real>
ISOBIT_INLINE Real dropout_scale(double p) {
  return static_cast<Real>(1 / (1 - p));
}

}  // namespace isobit::norms
