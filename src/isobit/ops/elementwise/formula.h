// SPDX-License-Identifier: Apache-2.0
// The arithmetic of elementwise, for one element, on every back end.
#pragma once

#include <cstdint>
#include <type_traits>

#include "isobit/core/dtype.h"
#include "isobit/core/inline.h"

namespace isobit::elementwise {

// Integers wrap around; 16-bit types are added in float, whose rounding is too fine to matter.
template <class Conversions, class T>
ISOBIT_INLINE T sum(T a, T b) {
  if constexpr (std::is_same_v<T, std::int32_t>) {
    return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  } else {
    using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
    return Conversions::template narrow<T>(Conversions::template widen<Real>(a) +
                                           Conversions::template widen<Real>(b));
  }
}

template <class T>
ISOBIT_INLINE T one() {
  if constexpr (std::is_arithmetic_v<T>)
    return T{1};
  else
    return from_float<T>(1.0f);
}

}  // namespace isobit::elementwise
