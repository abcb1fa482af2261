// SPDX-License-Identifier: Apache-2.0
// What rows and rows side by side share of their vector loops.
#pragma once

#include <limits>

#include "isobit/ops/reduce/cpu_kernels.h"
#include "isobit/simd/vec.h"

namespace isobit::reduce::ISOBIT_ISA {

// The largest and smallest magnitudes of lanes or, with their signs, elements. A comparison passes
// over NaN, which no sum of magnitudes does.
template <class S, bool kSigned>
struct LaneExtremes {
  using V = typename S::V;
  using Real = typename S::Real;
  static constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  V most = S::all(kSigned ? -kInfinity : Real(0)), least = S::all(kInfinity), sum = S::zero();

  ISOBIT_INLINE void add(V x) {
    const V size = magnitude_of<S>(x), value = kSigned ? x : size;
    most = S::max(value, most);
    least = S::min(value, least);
    sum = S::add(sum, size);
  }
  // Of each lane.
  ISOBIT_INLINE void store(Moments<Real> (&to)[S::kWidth]) const {
    Real mosts[S::kWidth], leasts[S::kWidth], sums[S::kWidth];
    S::template store<simd::Stores::cached>(mosts, most);
    S::template store<simd::Stores::cached>(leasts, least);
    S::template store<simd::Stores::cached>(sums, sum);
    for (int k = 0; k < S::kWidth; ++k) {
      const bool nan = sums[k] != sums[k];
      to[k] = {nan ? sums[k] : mosts[k], nan ? sums[k] : leasts[k]};
    }
  }
};

}  // namespace isobit::reduce::ISOBIT_ISA
