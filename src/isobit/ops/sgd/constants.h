// SPDX-License-Identifier: Apache-2.0
// What a step of sgd has of its options, in the type that it is computed in.
#pragma once

#include "isobit/core/inline.h"

namespace isobit::sgd {

// The numbers that all elements share.
template <class Real>
struct Constants {
  Real lr;
  Real momentum, rest;  // rest = 1 - dampening
  Real sign;            // of the gradient: -1 where it is climbed
  Real coupled;         // weight decay of the gradient
  bool couples, averages, first, nesterov;

  template <class Other>
  ISOBIT_INLINE Constants<Other> as() const {
    const auto to = [](Real value) { return static_cast<Other>(value); };
    return {to(lr),  to(momentum), to(rest), to(sign), to(coupled),
            couples, averages,     first,    nesterov};
  }
};

}  // namespace isobit::sgd
