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

// Halves onto each other: keys of a thread, then of threads, then neighbours.
template <class Real, int kThreads = tile::kAcross, int kCount = tile::Chunk<Real>::kCount,
          int kKeys>
ISOBIT_DEVICE Real sum_of_panel(Real (&terms)[kKeys]) {
  using S = tile::Scalar<Real>;
#pragma unroll
  for (int half = kKeys / 2; half >= kCount; half /= 2)
#pragma unroll
    for (int j = 0; j < half; ++j) terms[j] = S::add(terms[j], terms[j + half]);
#pragma unroll
  for (int apart = kThreads / 2; apart > 0; apart /= 2)
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      terms[j] = S::add(terms[j], simt::shuffle_xor(terms[j], apart));
#pragma unroll
  for (int half = kCount / 2; half > 0; half /= 2)
#pragma unroll
    for (int j = 0; j < half; ++j) terms[j] = S::add(terms[j], terms[j + half]);
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
