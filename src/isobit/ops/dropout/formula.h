// SPDX-License-Identifier: Apache-2.0
// What is kept and what becomes of it, on every back end: the masks are those of norms/philox.h.
#pragma once

#include <array>
#include <cstdint>

#include "isobit/norms/philox.h"

namespace isobit::dropout {

using Words = std::array<std::uint32_t, 4>;

template <class Real>
struct Mask {
  std::uint64_t seed;
  std::uint64_t threshold;  // words below it are dropped; beyond 32 bits if all are
  Real scale;               // of what is kept

  ISOBIT_INLINE static Mask of(double p, std::uint64_t seed) {
    return {seed, static_cast<std::uint64_t>(p * 0x1p32), norms::dropout_scale<Real>(p)};
  }
  // Of columns 4 * group to 4 * group + 3.
  ISOBIT_INLINE Words words(std::int64_t row, std::int64_t group) const {
    return norms::dropout_words(seed, row, group);
  }
  ISOBIT_INLINE bool keeps(std::uint32_t word) const { return word >= threshold; }
  // Not a product with 0: what is dropped may be infinite.
  ISOBIT_INLINE Real value(std::uint32_t word, Real x) const {
    return keeps(word) ? x * scale : Real(0);
  }
};

}  // namespace isobit::dropout
