// SPDX-License-Identifier: Apache-2.0
// How one element changes its type on the way, on every back end: it is rounded once.
#pragma once

#include <type_traits>

#include "isobit/core/dtype.h"
#include "isobit/core/odd.h"

namespace isobit::transpose {

// Whether a cast must go from double to float without rounding to nearest, because the 16-bit
// target rounds once more.
template <class T, class X>
inline constexpr bool kRoundsTwice = std::is_same_v<X, double> && sizeof(T) == 2;

// x as a T, to nearest even; a NaN becomes the canonical one. Needs the pinned float mode.
template <class Conversions, class T, class X>
ISOBIT_INLINE T cast(X x) {
  if constexpr (kRoundsTwice<T, X>)
    return Conversions::template narrow<T>(round_to_odd(x));
  else if constexpr (std::is_same_v<X, double>)
    return Conversions::template narrow<T>(static_cast<float>(x));
  else if constexpr (std::is_same_v<T, double>)
    return Conversions::template narrow<T>(
        static_cast<double>(Conversions::template widen<float>(x)));
  else
    return Conversions::template narrow<T>(Conversions::template widen<float>(x));
}

}  // namespace isobit::transpose
