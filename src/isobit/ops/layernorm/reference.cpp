// SPDX-License-Identifier: Apache-2.0
// LayerNorm of one row as the formula says it.
#include "isobit/ops/layernorm/reference.h"

#include "isobit/norms/reference_rows.h"

namespace isobit::layernorm {
namespace {

namespace reference = norms::reference;
using reference::mean_of;
using reference::root;

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

}  // namespace

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale,
                       const Rounding& rounding) {
  exact.x.dtype == DType::f128 ? reference::forward<Normalised, quad>(exact, scale, rounding)
                               : reference::forward<Normalised, double>(exact, scale, rounding);
}

void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale,
                        const Rounding& rounding) {
  exact.x.dtype == DType::f128 ? reference::backward<Normalised, quad>(exact, scale, rounding)
                               : reference::backward<Normalised, double>(exact, scale, rounding);
}

void forward_intermediates(const ForwardArgs& exact, const Rounding& rounding,
                           const EmitArray& emit) {
  reference::forward_intermediates<Normalised>(exact, rounding, emit);
}

void backward_intermediates(const BackwardArgs& exact, const Rounding&, const EmitArray& emit) {
  reference::backward_intermediates<Normalised>(exact, emit);
}

}  // namespace isobit::layernorm
