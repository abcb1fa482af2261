// SPDX-License-Identifier: Apache-2.0
// A step of SGD for one element or a vector of them, on every back end. S offers the operations of
// simd's F32.
#pragma once

#include "isobit/core/inline.h"
#include "isobit/ops/sgd/constants.h"

namespace isobit::sgd {

struct Rule {
  template <class Real>
  using Constants = sgd::Constants<Real>;

  // state: momentum_buffer, which the first step makes.
  template <class S>
  ISOBIT_INLINE static void step(const Constants<typename S::Real>& c, typename S::V& param,
                                 typename S::V grad, typename S::V* state) {
    using V = typename S::V;
    V g = S::mul(grad, S::all(c.sign));
    if (c.couples) g = S::fma(S::all(c.coupled), param, g);
    if (c.averages) {
      state[0] = c.first ? g : S::fma(S::all(c.rest), g, S::mul(S::all(c.momentum), state[0]));
      g = c.nesterov ? S::fma(S::all(c.momentum), state[0], g) : state[0];
    }
    param = S::minus_product(S::all(c.lr), g, param);
  }
};

}  // namespace isobit::sgd
