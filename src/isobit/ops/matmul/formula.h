// SPDX-License-Identifier: Apache-2.0
// What is done to a product's sum, and to its gradient, on every back end.
#pragma once

#include <limits>

#include "isobit/functions/logistic.h"
#include "isobit/functions/normal.h"
#include "isobit/ops/matmul/matmul.h"

namespace isobit::matmul {

template <class S>
ISOBIT_INLINE typename S::V activated(Activation activation, typename S::V x) {
  switch (activation) {
    case Activation::relu:
      return S::choose(S::less(x, functions::all<S>(0)), functions::all<S>(0), x);
    case Activation::gelu:      return functions::number<S>(functions::gelu<S>(x));
    case Activation::gelu_tanh: return functions::number<S>(functions::gelu_tanh<S>(x));
    case Activation::silu:      return functions::number<S>(functions::silu<S>(x));
    default:                    return x;
  }
}

// grad activation'(x). A NaN in the place of x has no slope: there it is grad, as in PyTorch.
template <class S>
ISOBIT_INLINE typename S::V slope(Activation activation, typename S::V grad, typename S::V x) {
  constexpr auto kLeast = std::numeric_limits<typename S::Real>::denorm_min();
  switch (activation) {
    case Activation::relu: return S::choose(S::less(x, S::all(kLeast)), functions::all<S>(0), grad);
    case Activation::gelu: return functions::times<S>(functions::gelu_derivative<S>(x), grad);
    case Activation::gelu_tanh:
      return functions::times<S>(functions::gelu_tanh_derivative<S>(x), grad);
    case Activation::silu: return functions::times<S>(functions::silu_derivative<S>(x), grad);
    default:               return grad;
  }
}

}  // namespace isobit::matmul
