// SPDX-License-Identifier: Apache-2.0
// What backward does to rows, as vectors.
#pragma once

#include "isobit/core/order.h"
#include "isobit/ops/attention/cpu_kernels.h"
#include "isobit/ops/attention/formula.h"
#include "isobit/ops/attention/problem.h"
#include "isobit/ops/matmul/cpu_lanes.h"
#include "isobit/simd/row_sums.h"
#include "isobit/simd/vec.h"

namespace isobit::attention::ISOBIT_ISA {

template <class S, class T>
void gradients(const void* given, const Gradients& g) {
  using Real = typename S::Real;
  using V = typename S::V;
  const auto& scaling = *static_cast<const Scaling<Real>*>(given);
  const auto one = [](const void* data) { return S::all(*static_cast<const Real*>(data)); };
  const V factor = S::all(scaling.factor), max = one(g.max), inverse = one(g.inverse),
          mean = one(g.mean), zero = S::zero();
  const auto *exponents = static_cast<const Real*>(g.exponents),
             *products = static_cast<const Real*>(g.products),
             *kept = static_cast<const Real*>(g.kept);
  auto *weights = static_cast<Real*>(g.weights), *of_weights = static_cast<Real*>(g.of_weights);
  auto* of_bias = reinterpret_cast<T*>(g.of_bias);
  const auto absent = S::all(std::numeric_limits<Real>::lowest());
  const auto put = [](Real* to, V value, auto... part) ISOBIT_INLINE_LAMBDA {
    S::template store<simd::Stores::cached, simd::Nan::absent>(to, value, part...);
  };
  matmul::ISOBIT_ISA::for_each_vector<S>(g.keys, [&](std::int64_t i,
                                                     auto... part) ISOBIT_INLINE_LAMBDA {
    const V product = S::load(products + i, part...);
    const V t = exponents == nullptr ? S::mul(product, factor) : S::load(exponents + i, part...);
    const auto is_absent = S::less(t, absent);
    const V p = S::choose(is_absent, zero, probability_of<S>(t, max, inverse));
    V of_weight = S::load(of_weights + i, part...), weight = p;
    if (kept != nullptr) {
      const V scale = S::load(kept + i, part...);
      const auto is_kept = S::less(zero, scale);
      weight = S::choose(is_kept, S::mul(p, scale), zero);
      of_weight = S::choose(is_kept, S::mul(of_weight, scale), zero);
    }
    V gradient = score_gradient<S>(p, of_weight, mean);
    gradient = S::choose(is_absent, zero, gradient);
    if (of_bias != nullptr) {
      if (g.of_bias_step == 1) {
        S::store(of_bias + i, gradient, part...);
      } else {
        T lanes[S::kWidth];
        S::store(lanes, gradient);
        for (int lane = 0; lane < S::kWidth && i + lane < g.keys; ++lane)
          of_bias[(i + lane) * g.of_bias_step] = lanes[lane];
      }
    }
    if (g.capped) gradient = S::choose(is_absent, zero, before_cap<S>(scaling, gradient, product));
    put(weights + i, weight, part...);
    put(of_weights + i, gradient, part...);
  });
}

template <class S, class T>
void write(const void* from, std::int64_t count, double factor, std::byte* to, std::int64_t step) {
  using Real = typename S::Real;
  const auto* sums = static_cast<const Real*>(from);
  auto* results = reinterpret_cast<T*>(to);
  const auto scale = S::all(static_cast<Real>(factor));
  matmul::ISOBIT_ISA::for_each_vector<S>(
      count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
        const auto value = S::mul(S::add(S::load(sums + i, part...), S::zero()), scale);
        if (step == 1) return S::store(results + i, value, part...);
        T lanes[S::kWidth];
        S::store(lanes, value);
        for (int lane = 0; lane < S::kWidth && i + lane < count; ++lane)
          results[(i + lane) * step] = lanes[lane];
      });
}

// At most kShortDim elements, as numbers side by side: the sum's many loads are simple then.
template <class S, class T>
ISOBIT_INLINE void gather(const std::byte* from, std::int64_t step, std::int64_t count,
                          typename S::Real* to) {
  const auto* x = reinterpret_cast<const T*>(from);
  for (std::int64_t i = 0; i < count; ++i) to[i] = widen<typename S::Real>(x[i * step]);
}
template <class S>
typename S::Real dot_of(const typename S::Real* a, const typename S::Real* b, std::int64_t count) {
  return simd::row_dot<S>(count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    return simd::Terms<S>{S::load(a + i, part...), S::load(b + i, part...)};
  });
}
template <class S, class T>
void dot(const std::byte* a, std::int64_t a_step, const std::byte* b, std::int64_t b_step,
         std::int64_t count, void* to) {
  using Real = typename S::Real;
  if (count > kShortDim) {
    const auto *x = reinterpret_cast<const T*>(a), *y = reinterpret_cast<const T*>(b);
    *static_cast<Real*>(to) = order::dot<Real>(
        count, [&](std::int64_t i) { return widen<Real>(x[i * a_step]); },
        [&](std::int64_t i) { return widen<Real>(y[i * b_step]); });
    return;
  }
  Real of_a[kShortDim], of_b[kShortDim];
  gather<S, T>(a, a_step, count, of_a);
  gather<S, T>(b, b_step, count, of_b);
  *static_cast<Real*>(to) = dot_of<S>(of_a, of_b, count);
}

template <class S, class T>
bool finite(const std::byte* from, std::int64_t step, std::int64_t count) {
  using Real = typename S::Real;
  const auto* x = reinterpret_cast<const T*>(from);
  Real bad = 0;
  if (step == 1) {
    auto lanes = S::zero();
    matmul::ISOBIT_ISA::for_each_vector<S>(
        count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
          lanes = S::fma(S::load(x + i, part...), S::zero(), lanes);
        });
    bad = S::fold(lanes);
  } else {
    for (std::int64_t i = 0; i < count; ++i) bad += widen<Real>(x[i * step]) * Real(0);
  }
  return bad == 0;
}

}  // namespace isobit::attention::ISOBIT_ISA
