// SPDX-License-Identifier: Apache-2.0
// A step of any optimiser in vectors; each operator compiles it once for each instruction set.
#pragma once

#include <algorithm>
#include <type_traits>

#include "isobit/optimizers/cpu_kernels.h"
#include "isobit/simd/prefetch.h"
#include "isobit/simd/roots.h"
#include "isobit/simd/row_loops.h"

namespace isobit::optimizers::ISOBIT_ISA {

namespace detail {

// Everything of some vectors is read before any of it is written: results may take the places of
// what they are made of. Of some, since arrays often lie a multiple of 4096 bytes apart, and single
// vectors that are stored to one array and another in turn then wait for each other: sgd with
// momentum took twice as long [AMD EPYC 25/1].
template <class Rule, class T, class G>
void run(const Step& step, const typename Rule::template Constants<double>& given,
         std::int64_t count) {
  using S = simd::WithRoots<simd::VectorsOf<T>>;
  using V = typename S::V;
  constexpr int kOfTwoLines = 128 / sizeof(typename S::Real);
  constexpr int kTogether = S::kWidth == 1 ? 1 : std::min(4, kOfTwoLines / S::kWidth);
  const auto constants = given.template as<typename S::Real>();
  // What is read is asked for so many bytes ahead: a step is too long for the processor to look
  // ahead itself (1.2 to 1.3 times as long [AMD EPYC 25/1]).
  constexpr std::int64_t kAhead = 1024;
  const auto fetch = [](const auto* array) ISOBIT_INLINE_LAMBDA {
    const auto* const bytes = reinterpret_cast<const std::byte*>(array);
#pragma GCC unroll 2
    for (std::size_t of = 0; of < kTogether * S::kWidth * sizeof(*array); of += 64)
      simd::fetch_to_second_cache(bytes + kAhead + of);
  };
  const auto vectors = [&](auto together, std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    constexpr int kVectors = decltype(together)::value;
    V param[kVectors], state[kVectors][kStates];
    const auto load = [&](const auto* from, int v) ISOBIT_INLINE_LAMBDA {
      return S::load(from + i + v * S::kWidth, part...);
    };
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      param[v] = load(reinterpret_cast<const T*>(step.param), v);
      const V grad = load(reinterpret_cast<const G*>(step.grad), v);
#pragma GCC unroll 3
      for (int k = 0; k < kStates; ++k)
        state[v][k] = step.state[k] == nullptr ? S::zero()
                                               : load(reinterpret_cast<const T*>(step.state[k]), v);
      Rule::template step<S>(constants, param[v], grad, state[v]);
    }
    const auto store = [&](auto* to, const auto& value) ISOBIT_INLINE_LAMBDA {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) S::store(to + i + v * S::kWidth, value(v), part...);
    };
    const auto of_param = [&](int v) ISOBIT_INLINE_LAMBDA { return param[v]; };
    store(reinterpret_cast<T*>(step.new_param), of_param);
    if (step.narrow != nullptr) store(reinterpret_cast<G*>(step.narrow), of_param);
#pragma GCC unroll 3
    for (int k = 0; k < kStates; ++k)
      if (step.new_state[k] != nullptr)
        store(reinterpret_cast<T*>(step.new_state[k]),
              [&](int v) ISOBIT_INLINE_LAMBDA { return state[v][k]; });
  };
  std::int64_t i = 0;
  for (; i + kTogether * S::kWidth <= count; i += kTogether * S::kWidth) {
    fetch(reinterpret_cast<const T*>(step.param) + i);
    fetch(reinterpret_cast<const G*>(step.grad) + i);
#pragma GCC unroll 3
    for (int k = 0; k < kStates; ++k)
      if (step.state[k] != nullptr) fetch(reinterpret_cast<const T*>(step.state[k]) + i);
    vectors(std::integral_constant<int, kTogether>(), i);
  }
  simd::for_each_vector<S>(count - i, [&](std::int64_t j, auto... part) ISOBIT_INLINE_LAMBDA {
    vectors(std::integral_constant<int, 1>(), i + j, part...);
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
