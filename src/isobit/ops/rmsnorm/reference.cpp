// SPDX-License-Identifier: Apache-2.0
// RMSNorm of one row as the formula says it.
#include "isobit/ops/rmsnorm/reference.h"

#include "isobit/norms/reference_rows.h"

namespace isobit::rmsnorm {
namespace {

namespace reference = norms::reference;
using reference::mean_of;
using reference::root;

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

}  // namespace isobit::rmsnorm
