// SPDX-License-Identifier: Apache-2.0
// What a step of adam has of its options, in the type that it is computed in.
#pragma once

#include "isobit/core/inline.h"

namespace isobit::adam {

// The numbers that all elements share.
template <class Real>
struct Constants {
  Real beta1, rest1;  // rest1 = 1 - beta1
  Real beta2, rest2;
  Real eps;
  Real sign;       // of the gradient: -1 where it is climbed
  Real coupled;    // weight decay of the gradient
  Real decay;      // of the parameter, 1 - lr weight_decay
  Real step_size;  // lr / (1 - beta1^step)
  Real root;       // sqrt(1 - beta2^step)
  bool couples, decays, amsgrad;

  template <class Other>
  ISOBIT_INLINE Constants<Other> as() const {
    const auto to = [](Real value) { return static_cast<Other>(value); };
    return {to(beta1), to(rest1),     to(beta2), to(rest2), to(eps), to(sign), to(coupled),
            to(decay), to(step_size), to(root),  couples,   decays,  amsgrad};
  }
};

}  // namespace isobit::adam
