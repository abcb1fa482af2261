// SPDX-License-Identifier: Apache-2.0
// LayerNorm of one row as the formula says it.
#include "isobit/norms/reference_rows.h"
#include "isobit/ops/layernorm/norm.h"

namespace isobit::layernorm {

using norms::reference::mean_of;
using norms::reference::root;

// One row, normalised.
template <class Real>
struct Normalised {
  static constexpr const char* kMeanSquare = "variance";

  explicit Normalised(std::int64_t cols) : x_hat(cols) {}

  // Measured from the first element, so that a constant row is exact. What the rounded mean misses
  // is taken off separately: |mean| can be 4e9 times the deviations.
  void compute(const Real* x, Real eps) {
    const std::int64_t cols = x_hat.size();
    const Real first = cols > 0 ? x[0] : 0;
    const Real near = first + mean_of(cols, [&](auto i) { return x[i] - first; });
    const Real rest = mean_of(cols, [&](auto i) { return x[i] - near; });
    for (std::int64_t i = 0; i < cols; ++i) x_hat[i] = (x[i] - near) - rest;
    mean = near + rest;
    mean_square = mean_of(cols, [&](auto i) { return x_hat[i] * x_hat[i]; });
    rstd = mean_square == 0 && eps == 0 ? 0 : 1 / root(mean_square + eps);
    for (Real& value : x_hat) value *= rstd;
  }

  void compute_with(const Real* x, Real given_mean, Real given_rstd) {
    mean = given_mean;
    rstd = given_rstd;
    for (std::size_t i = 0; i < x_hat.size(); ++i) x_hat[i] = (x[i] - mean) * rstd;
  }

  Real mean{}, mean_square{}, rstd{};  // mean_square: of what is left without the mean
  std::vector<Real> x_hat;
};

}  // namespace isobit::layernorm

template struct isobit::norms::Reference<isobit::layernorm::Norm>;
