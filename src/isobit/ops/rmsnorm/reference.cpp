// SPDX-License-Identifier: Apache-2.0
// RMSNorm of one row as the formula says it.
#include "isobit/norms/reference_rows.h"
#include "isobit/ops/rmsnorm/norm.h"

namespace isobit::rmsnorm {

using norms::reference::mean_of;
using norms::reference::root;

// One row, normalised.
template <class Real>
struct Normalised {
  static constexpr const char* kMeanSquare = "mean_square";

  explicit Normalised(std::int64_t cols) : x_hat(cols) {}

  void compute(const Real* x, Real eps) {
    const std::int64_t cols = x_hat.size();
    mean_square = mean_of(cols, [&](auto i) { return x[i] * x[i]; });
    compute_with(x, mean_square == 0 && eps == 0 ? 0 : 1 / root(mean_square + eps));
  }

  void compute_with(const Real* x, Real given_rstd) {
    rstd = given_rstd;
    for (std::size_t i = 0; i < x_hat.size(); ++i) x_hat[i] = x[i] * rstd;
  }

  Real mean_square{}, rstd{};
  std::vector<Real> x_hat;
};

}  // namespace isobit::rmsnorm

template struct isobit::norms::Reference<isobit::rmsnorm::Norm>;
