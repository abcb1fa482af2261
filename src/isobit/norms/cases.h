// SPDX-License-Identifier: Apache-2.0
// The grids that norms are verified and timed on, and what their calls must move and compute.
#pragma once

#include "isobit/core/case.h"
#include "isobit/core/tensor_view.h"
#include "isobit/norms/check.h"

namespace isobit::norms {

// Grids: quick, test, full, bench, bench-quick. An operator without such a grid says so by name.
std::vector<CaseGrid> forward_cases(std::string_view op, std::string_view grid);
std::vector<CaseGrid> backward_cases(std::string_view op, std::string_view grid);

double elements(const TensorView& view);

// Each array given moves once.
double bytes(std::initializer_list<const TensorView*> views);

// Operations of an element, an fma counted as two.
inline constexpr double kOne = 1;    // a product with weight, a sum with bias, a residual's
inline constexpr double kTwo = 2;    // a product that is summed up
inline constexpr double kScale = 1;  // x_hat of what is centered

// What a call must at least move and compute. Norm says what its own steps take.
template <class Norm>
Cost forward_cost(const typename Norm::ForwardArgs& args) {
  const TensorView &bias = detail::bias_of(args), &mean = detail::mean_of(args);
  double flops = Norm::kStatistics + kScale;
  for (const TensorView* view : {&args.weight, &bias, &args.residual})
    if (view->given()) flops += kOne;
  return {.bytes = bytes({&args.x, &args.residual, &args.weight, &bias, &args.y, &args.sum, &mean,
                          &args.rstd}),
          .flops = flops * elements(args.x)};
}

template <class Norm>
Cost backward_cost(const typename Norm::BackwardArgs& args) {
  const TensorView &mean = detail::mean_of(args), &grad_bias = detail::grad_bias_of(args);
  const bool rows = args.grad_x.given() || args.grad_residual.given();
  double flops = 0;
  if (rows || args.grad_weight.given())
    flops += args.rstd.given() ? Norm::kScaleGiven : Norm::kStatistics + kScale;
  if (rows) flops += Norm::kGradX + (args.weight.given() ? kOne : 0);
  if (args.grad_sum.given()) flops += kOne;
  if (args.grad_weight.given()) flops += kTwo;
  if (grad_bias.given()) flops += kOne;
  return {.bytes = bytes({&args.x, &args.grad_y, &args.weight, &mean, &args.rstd, &args.grad_sum,
                          &args.grad_x, &args.grad_residual, &args.grad_weight, &grad_bias}),
          .flops = flops * elements(args.x)};
}

}  // namespace isobit::norms
