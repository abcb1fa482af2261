// SPDX-License-Identifier: Apache-2.0
// What group_norm and batch_norm compute of a row beside LayerNorm's formula: its variance, and
// what becomes of running statistics.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "isobit/ops/layernorm/formula.h"

namespace isobit::channel_norm {

using layernorm::Formula;
using norms::Moments;
using norms::Statistics;

// The variance of a row of which layernorm's formula found `statistics` in a way that is not plain.
template <class Row, class Real = typename Row::Real>
ISOBIT_NOINLINE Real unusual_variance(const Row& row, const Statistics<Real>& statistics,
                                      std::int64_t count) {
  if (statistics.equal) return 0;
  if (statistics.mean != statistics.mean) return std::numeric_limits<Real>::quiet_NaN();
  using Any = layernorm::NormaliseAny<typename Row::Scalar>;
  const Moments<Real> moments =
      row.moments([any = Any(statistics)](Real x) { return any.centered(x); });
  const Real n = static_cast<Real>(count);
  const Real value = layernorm::detail::variance(moments.sum / n, moments.squares / n);
  return std::ldexp(value, -2 * statistics.exponent);
}

// `deviations`: those of the second round.
template <class Row, class Real = typename Row::Real>
ISOBIT_INLINE Real variance_of(const Row& row, const Statistics<Real>& statistics,
                               const Moments<Real>& deviations, std::int64_t count) {
  const Real n = static_cast<Real>(count);
  if (statistics.plain) [[likely]]
    return layernorm::detail::variance(deviations.sum / n, deviations.squares / n);
  return unusual_variance(row.rare(), statistics, count);
}

// (1 - momentum) running + momentum current
template <class Real>
ISOBIT_INLINE Real moved(Real running, Real current, double momentum) {
  return std::fma(static_cast<Real>(momentum), current, static_cast<Real>(1 - momentum) * running);
}

// Divided by one less than there are elements.
template <class Real>
ISOBIT_INLINE Real unbiased(Real variance, std::int64_t count) {
  return variance * (static_cast<Real>(count) / static_cast<Real>(count - 1));
}

// Statistics that were gathered before.
template <class Real>
ISOBIT_INLINE Statistics<Real> running_statistics(Real mean, Real variance, double eps) {
  return norms::given_statistics(mean, norms::inverse_root(variance + static_cast<Real>(eps)));
}

}  // namespace isobit::channel_norm
