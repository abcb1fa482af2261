// SPDX-License-Identifier: Apache-2.0
// The tree of core/order.h over a few sums in registers.
#pragma once

#include "isobit/simt/simt.h"

namespace isobit::tile {

// Adjacent pairs, level by level. Zeros in the place of what is not there change no sum but the
// sign of a zero, which the total repairs.
template <int kCount, class Real>
ISOBIT_DEVICE Real pairs(const Real (&sums)[kCount]) {
  Real level[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) level[i] = sums[i];
#pragma unroll
  for (int step = 1; step < kCount; step *= 2)
#pragma unroll
    for (int i = 0; i + step < kCount; i += 2 * step) level[i] += level[i + step];
  return level[0] + Real(0);
}

}  // namespace isobit::tile
