// SPDX-License-Identifier: Apache-2.0
// The arithmetic of one pair, of scalars and vectors, on every back end. S offers the operations of
// simd's F32.
#pragma once

#include "isobit/functions/arithmetic.h"
#include "isobit/ops/rope/rope.h"

namespace isobit::rope {

template <class S>
struct Pair {
  typename S::V first, second;
};

// (a cos - b sin, b cos + a sin), each with two roundings.
template <class S>
ISOBIT_INLINE Pair<S> turned(const Pair<S>& x, typename S::V cosine, typename S::V sine) {
  return {S::fma(x.first, cosine, functions::negative<S>(S::mul(x.second, sine))),
          S::fma(x.second, cosine, S::mul(x.first, sine))};
}

}  // namespace isobit::rope
