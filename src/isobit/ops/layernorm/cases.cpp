// SPDX-License-Identifier: Apache-2.0
// The grids and costs of LayerNorm.
#include "isobit/ops/layernorm/cases.h"

#include "isobit/norms/cases.h"

namespace isobit::layernorm {
namespace {

using norms::kOne;
using norms::kScale;
using norms::kTwo;

constexpr double kStatistics = 6;  // mean 1, centre 1, mean of that 1, variance 2, centre again 1
constexpr double kScaleGiven = 2;  // x_hat of x with given statistics
constexpr double kGradX = 1 + 2 + 4;  // mean of g, mean of g * x_hat, r * fma(-x_hat, c2, g - c1)

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view grid) {
  return norms::forward_cases("layernorm", grid);
}
std::vector<CaseGrid> backward_cases(std::string_view grid) {
  return norms::backward_cases("layernorm", grid);
}

Cost forward_cost(const ForwardArgs& args) {
  double flops = kStatistics + kScale;
  for (const TensorView* view : {&args.weight, &args.bias, &args.residual})
    if (view->given()) flops += kOne;
  return {.bytes = norms::bytes({&args.x, &args.residual, &args.weight, &args.bias, &args.y,
                                 &args.sum, &args.mean, &args.rstd}),
          .flops = flops * norms::elements(args.x)};
}

Cost backward_cost(const BackwardArgs& args) {
  const bool rows = args.grad_x.given() || args.grad_residual.given();
  double flops = 0;
  if (rows || args.grad_weight.given())
    flops += args.rstd.given() ? kScaleGiven : kStatistics + kScale;
  if (rows) flops += kGradX + (args.weight.given() ? kOne : 0);
  if (args.grad_sum.given()) flops += kOne;
  if (args.grad_weight.given()) flops += kTwo;
  if (args.grad_bias.given()) flops += kOne;
  return {.bytes = norms::bytes({&args.x, &args.grad_y, &args.weight, &args.mean, &args.rstd,
                                 &args.grad_sum, &args.grad_x, &args.grad_residual,
                                 &args.grad_weight, &args.grad_bias}),
          .flops = flops * norms::elements(args.x)};
}

}  // namespace isobit::layernorm
