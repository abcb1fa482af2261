// SPDX-License-Identifier: Apache-2.0
// Which monoid a kind is, over scalars: one place for the CPU's specification and all kernels.
#pragma once

#include <type_traits>

#include "isobit/ops/scan/formula.h"
#include "isobit/ops/scan/scan.h"

namespace isobit::scan {

// Calls visit(M) with the monoid of a kind over scalars: S is of floats, Y of what is computed in.
// kMirrored: minima are the maxima of numbers that the caller mirrors.
template <template <class> class Scalars, class Y, bool kMirrored = false, class Visit>
ISOBIT_INLINE_HOST void with_monoid(Kind kind, const Visit& visit) {
  if constexpr (std::is_integral_v<Y>) {
    switch (kind) {
      case Kind::prod: return visit(Wrapping<Y, true>{});
      case Kind::max:  return visit(Extreme<Y, true>{});
      case Kind::min:  return visit(Extreme<Y, kMirrored>{});
      default:         return visit(Wrapping<Y, false>{});
    }
  } else {
    using Real = std::conditional_t<sizeof(Y) == 8, double, float>;
    using S = Scalars<Real>;
    switch (kind) {
      case Kind::prod:      return visit(Product<S>{});
      case Kind::max:       return visit(Extreme<Real, true>{});
      case Kind::min:       return visit(Extreme<Real, kMirrored>{});
      case Kind::logsumexp: return visit(LogSumExp<S>{});
      default:              return visit(Sum<S>{});
    }
  }
}

}  // namespace isobit::scan
