// SPDX-License-Identifier: Apache-2.0
// Weights of a panel's keys of one query, which kThreads threads side by side share: of each
// kThreads
// * kCount keys one has kCount adjacent ones.
#pragma once

#include "isobit/ops/attention/formula.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/register_tile.h"

namespace isobit::attention {

// A weight of a key that is not there, or dropped, is -0, which no other is: it adds nothing, and
// tells which products are left out where v is not finite.
template <class Real>
ISOBIT_DEVICE bool is_left_out(Real weight) {
  using S = tile::Scalar<Real>;
  return S::bits(weight) == S::bits(-Real(0));
}

// Halves onto each other, until `kLeast` are left. Loops that halve are not unrolled, and registers
// have no index.
template <int kHalf, int kLeast, class Real, int kKeys>
ISOBIT_DEVICE void add_halves(Real (&terms)[kKeys]) {
  if constexpr (kHalf >= kLeast) {
#pragma unroll
    for (int j = 0; j < kHalf; ++j) terms[j] = tile::Scalar<Real>::add(terms[j], terms[j + kHalf]);
    add_halves<kHalf / 2, kLeast>(terms);
  }
}

// Halves onto each other: keys of a thread, then of threads, then neighbours.
template <class Real, int kThreads = tile::kAcross, int kCount = tile::Chunk<Real>::kCount,
          int kKeys>
ISOBIT_DEVICE Real sum_of_panel(Real (&terms)[kKeys]) {
  using S = tile::Scalar<Real>;
  add_halves<kKeys / 2, kCount>(terms);
#pragma unroll
  for (int apart = kThreads / 2; apart > 0; apart /= 2)
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      terms[j] = S::add(terms[j], simt::shuffle_xor(terms[j], apart));
  add_halves<kCount / 2, 1>(terms);
  return terms[0];
}

template <class Real>
struct PanelSums {
  Real top, sum;
};
// Exponents become weights beside the largest of them.
template <class Real, int kThreads = tile::kAcross, int kCount = tile::Chunk<Real>::kCount,
          int kKeys>
ISOBIT_DEVICE PanelSums<Real> weigh_panel(Real (&keys)[kKeys]) {
  using S = tile::Scalar<Real>;
  Real top = nearest<S>(keys[0]);
#pragma unroll
  for (int j = 1; j < kKeys; ++j) top = S::max(top, nearest<S>(keys[j]));
#pragma unroll
  for (int apart = kThreads / 2; apart > 0; apart /= 2)
    top = S::max(top, simt::shuffle_xor(top, apart));
  Real terms[kKeys];
#pragma unroll
  for (int j = 0; j < kKeys; ++j) {
    terms[j] = weight_of<S>(keys[j], base_of<S>(top));
    keys[j] = keys[j] == -kInfinity<Real> ? -Real(0) : terms[j];
  }
  return {top, sum_of_panel<Real, kThreads, kCount>(terms)};
}

}  // namespace isobit::attention
