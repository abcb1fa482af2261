// SPDX-License-Identifier: Apache-2.0
// The square root, correctly rounded, of one element or a vector of them, on every back end.
#pragma once

#include <cmath>

#include "isobit/core/inline.h"

namespace isobit::functions {

template <class S>
ISOBIT_INLINE typename S::V sqrt(typename S::V x) {
  if constexpr (requires { S::sqrt(x); })
    return S::sqrt(x);
  else  // of vectors of one lane
    return std::sqrt(x);
}

}  // namespace isobit::functions
