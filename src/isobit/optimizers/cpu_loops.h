// SPDX-License-Identifier: Apache-2.0
// A step of any optimiser in vectors; each operator compiles it once for each instruction set.
#pragma once

#include <type_traits>

#include "isobit/optimizers/cpu_kernels.h"
#include "isobit/simd/roots.h"
#include "isobit/simd/row_loops.h"

namespace isobit::optimizers::ISOBIT_ISA {

namespace detail {

// Everything of a vector is read before any of it is written: results may take the places of what
// they are made of.
template <class Rule, class T, class G>
void run(const Step& step, const typename Rule::template Constants<double>& given,
         std::int64_t count) {
  using S = simd::WithRoots<std::conditional_t<sizeof(T) == 8, simd::F64, simd::F32>>;
  using V = typename S::V;
  const auto constants = given.template as<typename S::Real>();
  simd::for_each_vector<S>(count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    const auto load = [&](const auto* from)
                          ISOBIT_INLINE_LAMBDA { return S::load(from + i, part...); };
    V param = load(reinterpret_cast<const T*>(step.param));
    const V grad = load(reinterpret_cast<const G*>(step.grad));
    V state[kStates];
#pragma GCC unroll 3
    for (int k = 0; k < kStates; ++k)
      state[k] =
          step.state[k] == nullptr ? S::zero() : load(reinterpret_cast<const T*>(step.state[k]));
    Rule::template step<S>(constants, param, grad, state);
    const auto store = [&](auto* to, V value)
                           ISOBIT_INLINE_LAMBDA { S::store(to + i, value, part...); };
    store(reinterpret_cast<T*>(step.new_param), param);
    if (step.narrow != nullptr) store(reinterpret_cast<G*>(step.narrow), param);
#pragma GCC unroll 3
    for (int k = 0; k < kStates; ++k)
      if (step.new_state[k] != nullptr) store(reinterpret_cast<T*>(step.new_state[k]), state[k]);
  });
}

}  // namespace detail

template <class Rule>
Kernel<Rule> Kernels<Rule>::kernel(DType dtype, DType grad_dtype) {
  if (dtype == DType::f16) return detail::run<Rule, f16, f16>;
  if (dtype == DType::bf16) return detail::run<Rule, bf16, bf16>;
  if (dtype == DType::f64) return detail::run<Rule, double, double>;
  if (grad_dtype == DType::f16) return detail::run<Rule, float, f16>;
  if (grad_dtype == DType::bf16) return detail::run<Rule, float, bf16>;
  return detail::run<Rule, float, float>;
}

}  // namespace isobit::optimizers::ISOBIT_ISA
