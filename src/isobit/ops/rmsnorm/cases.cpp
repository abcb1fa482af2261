// SPDX-License-Identifier: Apache-2.0
// The grids and costs of RMSNorm.
#include "isobit/ops/rmsnorm/cases.h"

#include "isobit/norms/cases.h"

namespace isobit::rmsnorm {
namespace {

using norms::kOne;
using norms::kScale;
using norms::kTwo;

constexpr double kStatistics = 2;  // the mean of squares
constexpr double kGradX = 2 + 3;   // mean of g * x_hat, r * fma(-x_hat, c2, g)

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view grid) {
  return norms::forward_cases("rmsnorm", grid);
}
std::vector<CaseGrid> backward_cases(std::string_view grid) {
  return norms::backward_cases("rmsnorm", grid);
}

Cost forward_cost(const ForwardArgs& args) {
  double flops = kStatistics + kScale;
  for (const TensorView* view : {&args.weight, &args.residual})
    if (view->given()) flops += kOne;
  return {.bytes =
              norms::bytes({&args.x, &args.residual, &args.weight, &args.y, &args.sum, &args.rstd}),
          .flops = flops * norms::elements(args.x)};
}

Cost backward_cost(const BackwardArgs& args) {
  const bool rows = args.grad_x.given() || args.grad_residual.given();
  double flops = 0;
  if (rows || args.grad_weight.given()) flops += kScale + (args.rstd.given() ? 0 : kStatistics);
  if (rows) flops += kGradX + (args.weight.given() ? kOne : 0);
  if (args.grad_sum.given()) flops += kOne;
  if (args.grad_weight.given()) flops += kTwo;
  return {.bytes = norms::bytes({&args.x, &args.grad_y, &args.weight, &args.rstd, &args.grad_sum,
                                 &args.grad_x, &args.grad_residual, &args.grad_weight}),
          .flops = flops * norms::elements(args.x)};
}

}  // namespace isobit::rmsnorm
