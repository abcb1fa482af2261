// SPDX-License-Identifier: Apache-2.0
// A number without its sign, for references: <cmath> knows no quads.
#pragma once

namespace isobit {

template <class Real>
constexpr Real magnitude(Real x) {
  return x < 0 ? -x : x;
}

}  // namespace isobit
