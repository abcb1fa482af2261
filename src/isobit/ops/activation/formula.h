// SPDX-License-Identifier: Apache-2.0
// The arithmetic of activation, of scalars and vectors, on every back end. S offers the operations
// of simd's F32.
#pragma once

#include <limits>

#include "isobit/functions/exponential.h"
#include "isobit/functions/logarithm.h"
#include "isobit/functions/logistic.h"
#include "isobit/functions/normal.h"
#include "isobit/ops/activation/activation.h"

namespace isobit::activation {

namespace detail {

using functions::Scaled;
using functions::VectorOf;

// f(x), of those whose results may leave the range of a number that they are multiplied by.
template <class S>
ISOBIT_INLINE Scaled<S> scaled(Function function, VectorOf<S> x) {
  switch (function) {
    case Function::exp:       return functions::scaled_exp<S>(x);
    case Function::gelu:      return functions::gelu<S>(x);
    case Function::gelu_tanh: return functions::gelu_tanh<S>(x);
    case Function::silu:      return functions::silu<S>(x);
    default:                  return functions::sigmoid<S>(x);
  }
}

// f'(x).
template <class S>
ISOBIT_INLINE Scaled<S> derivative(Function function, VectorOf<S> x) {
  switch (function) {
    case Function::exp:       return functions::scaled_exp<S>(x);
    case Function::gelu:      return functions::gelu_derivative<S>(x);
    case Function::gelu_tanh: return functions::gelu_tanh_derivative<S>(x);
    case Function::silu:      return functions::silu_derivative<S>(x);
    case Function::tanh:      return functions::tanh_derivative<S>(x);
    default:                  return functions::sigmoid_derivative<S>(x);
  }
}

// x, but NaN below 0, where log has no slope.
template <class S>
ISOBIT_INLINE VectorOf<S> in_domain_of_log(VectorOf<S> x) {
  constexpr auto kNan = std::numeric_limits<typename S::Real>::quiet_NaN();
  return S::choose(S::less(x, functions::all<S>(0)), S::all(kNan), x);
}

}  // namespace detail

// f(x).
template <class S>
ISOBIT_INLINE typename S::V value(Function function, typename S::V x) {
  if (function == Function::exp) return functions::exp<S>(x);
  if (function == Function::log) return functions::log<S>(x);
  if (function == Function::tanh) return functions::tanh<S>(x);
  return functions::number<S>(detail::scaled<S>(function, x));
}

// x f(gate): in range wherever the product is, though f(gate) may not be.
template <class S>
ISOBIT_INLINE typename S::V gated_value(Function function, typename S::V x, typename S::V gate) {
  if (function == Function::log) return S::mul(functions::log<S>(gate), x);
  if (function == Function::tanh) return S::mul(functions::tanh<S>(gate), x);
  return functions::times<S>(detail::scaled<S>(function, gate), x);
}

// grad f'(x).
template <class S>
ISOBIT_INLINE typename S::V gradient(Function function, typename S::V grad, typename S::V x) {
  if (function == Function::log) return S::div(grad, detail::in_domain_of_log<S>(x));
  return functions::times<S>(detail::derivative<S>(function, x), grad);
}

// grad x f'(gate), with one rounding to its range.
template <class S>
ISOBIT_INLINE typename S::V gate_gradient(Function function, typename S::V grad, typename S::V x,
                                          typename S::V gate) {
  if constexpr (functions::kUsual<S>)
    return functions::times<S>(detail::derivative<S>(function, gate), S::mul(grad, x));
  const auto factor = functions::product<S>(functions::split<S>(grad), functions::split<S>(x));
  if (function == Function::log)
    return functions::number<S>(
        functions::quotient<S>(factor, functions::split<S>(detail::in_domain_of_log<S>(gate))));
  // What no single number brings back into range counts as zero: functions end at such arguments,
  // and grad x may be larger than any number.
  auto slope = detail::derivative<S>(function, gate);
  const auto least = functions::all<S>(functions::FormatOf<S>::kLeastFactor);
  slope.value = S::choose(S::less(slope.exponent, least), functions::all<S>(0), slope.value);
  return functions::number<S>(functions::product<S>(slope, factor));
}

}  // namespace isobit::activation
