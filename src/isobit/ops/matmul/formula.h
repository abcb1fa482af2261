// SPDX-License-Identifier: Apache-2.0
// What is done to a product's sum, on every back end.
#pragma once

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

}  // namespace isobit::matmul
