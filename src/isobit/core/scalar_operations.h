// SPDX-License-Identifier: Apache-2.0
// What formulas need of one element beside sums and products, for every back end whose vectors have
// one lane.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "isobit/core/inline.h"

namespace isobit {

template <class Number>
struct ScalarOperations {
  using Bits = std::conditional_t<sizeof(Number) == 8, std::uint64_t, std::uint32_t>;
  using Mask = bool;

  ISOBIT_INLINE static Number div(Number a, Number b) { return a / b; }
  // The second where one is NaN or both are zero.
  ISOBIT_INLINE static Number min(Number a, Number b) { return a < b ? a : b; }
  ISOBIT_INLINE static Number max(Number a, Number b) { return a > b ? a : b; }
  ISOBIT_INLINE static Mask less(Number a, Number b) { return a < b; }
  ISOBIT_INLINE static Number choose(Mask mask, Number yes, Number no) { return mask ? yes : no; }

  ISOBIT_INLINE static Bits all_bits(Bits value) { return value; }
  ISOBIT_INLINE static Bits bits(Number value) { return std::bit_cast<Bits>(value); }
  ISOBIT_INLINE static Number real(Bits value) { return std::bit_cast<Number>(value); }
  ISOBIT_INLINE static Bits bits_and(Bits a, Bits b) { return a & b; }
  ISOBIT_INLINE static Bits bits_xor(Bits a, Bits b) { return a ^ b; }
  ISOBIT_INLINE static Bits bits_add(Bits a, Bits b) { return a + b; }
  template <int kPlaces>
  ISOBIT_INLINE static Bits shift_left(Bits a) {
    return a << kPlaces;
  }
  template <int kPlaces>
  ISOBIT_INLINE static Bits shift_right(Bits a) {
    return a >> kPlaces;
  }
};

}  // namespace isobit
