// SPDX-License-Identifier: Apache-2.0
// A step of Adam for one element or a vector of them, on every back end. S offers the operations of
// simd's F32.
#pragma once

#include <limits>

#include "isobit/core/inline.h"
#include "isobit/functions/root.h"
#include "isobit/ops/adam/constants.h"

namespace isobit::adam {

// The larger one; NaN where either is.
template <class S>
ISOBIT_INLINE typename S::V larger(typename S::V a, typename S::V b) {
  constexpr auto kMost = std::numeric_limits<typename S::Real>::max();
  const typename S::V number =  // a, in range; min and max give the second where one is NaN
      S::max(S::all(-kMost), S::min(S::all(kMost), a));
  return S::fma(number, S::all(0), S::choose(S::less(b, a), a, b));
}

struct Rule {
  template <class Real>
  using Constants = adam::Constants<Real>;

  // state: exp_avg, exp_avg_sq and max_exp_avg_sq.
  template <class S>
  ISOBIT_INLINE static void step(const Constants<typename S::Real>& c, typename S::V& param,
                                 typename S::V grad, typename S::V* state) {
    using V = typename S::V;
    V g = S::mul(grad, S::all(c.sign));
    if (c.couples) g = S::fma(S::all(c.coupled), param, g);
    if (c.decays) param = S::mul(param, S::all(c.decay));
    state[0] = S::fma(S::all(c.rest1), g, S::mul(S::all(c.beta1), state[0]));
    state[1] = S::fma(S::mul(S::all(c.rest2), g), g, S::mul(S::all(c.beta2), state[1]));
    if (c.amsgrad) state[2] = larger<S>(state[2], state[1]);
    const V square = c.amsgrad ? state[2] : state[1];
    const V scale = S::add(S::div(functions::sqrt<S>(square), S::all(c.root)), S::all(c.eps));
    param = S::minus_product(S::all(c.step_size), S::div(state[0], scale), param);
  }
};

}  // namespace isobit::adam
