// SPDX-License-Identifier: Apache-2.0
// A step of Lion for one element or a vector of them, on every back end. S offers the operations of
// simd's F32.
#pragma once

#include "isobit/core/inline.h"
#include "isobit/ops/lion/constants.h"

namespace isobit::lion {

struct Rule {
  template <class Real>
  using Constants = lion::Constants<Real>;

  // state: exp_avg.
  template <class S>
  ISOBIT_INLINE static void step(const Constants<typename S::Real>& c, typename S::V& param,
                                 typename S::V grad, typename S::V* state) {
    using V = typename S::V;
    const V g = S::mul(grad, S::all(c.sign)), zero = S::all(0);
    if (c.decays) param = S::mul(param, S::all(c.decay));
    const V way = S::fma(S::all(c.rest1), g, S::mul(S::all(c.beta1), state[0]));
    // 0 and NaN stay themselves.
    const V by = S::choose(S::less(zero, way), S::all(c.lr),
                           S::choose(S::less(way, zero), S::all(-c.lr), way));
    param = S::sub(param, by);
    state[0] = S::fma(S::all(c.rest2), g, S::mul(S::all(c.beta2), state[0]));
  }
};

}  // namespace isobit::lion
