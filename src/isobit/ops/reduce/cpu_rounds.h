// SPDX-License-Identifier: Apache-2.0
// What rows and rows side by side share of their vector loops.
#pragma once

#include <limits>
#include <type_traits>

#include "isobit/ops/reduce/cpu_kernels.h"
#include "isobit/simd/row_sums.h"

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

template <simd::Want kWant>
using WantConstant = std::integral_constant<simd::Want, kWant>;

// Calls body(RoundConstant, WantConstant) with a round that sums, and which of its sums is used.
template <class Body>
ISOBIT_INLINE void with_wanted(const Problem& p, Round round, bool has_centre, const Body& body) {
  with_round(round, [&](auto constant) ISOBIT_INLINE_LAMBDA {
    if constexpr (decltype(constant)::value == Round::deviations) {
      if (has_centre) return body(constant, WantConstant<simd::Want::both>());
      if (p.kind == Kind::l2) return body(constant, WantConstant<simd::Want::dot>());
    }
    body(constant, WantConstant<simd::Want::sum>());
  });
}

}  // namespace isobit::reduce::ISOBIT_ISA
