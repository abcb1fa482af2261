// SPDX-License-Identifier: Apache-2.0
// What a step of lion has of its options, in the type that it is computed in.
#pragma once

#include "isobit/core/inline.h"

namespace isobit::lion {

// The numbers that all elements share.
template <class Real>
struct Constants {
  Real lr;
  Real beta1, rest1;  // rest1 = 1 - beta1
  Real beta2, rest2;
  Real sign;   // of the gradient: -1 where it is climbed
  Real decay;  // of the parameter, 1 - lr weight_decay
  bool decays;

  template <class Other>
  ISOBIT_INLINE Constants<Other> as() const {
    const auto to = [](Real value) { return static_cast<Other>(value); };
    return {to(lr), to(beta1), to(rest1), to(beta2), to(rest2), to(sign), to(decay), decays};
  }
};

}  // namespace isobit::lion
