// SPDX-License-Identifier: Apache-2.0
// The grids that both operators are verified and timed on, what their calls must move and compute,
// and the limits of their errors.
#pragma once

#include <algorithm>
#include <cmath>

#include "isobit/core/case.h"
#include "isobit/core/tensor_view.h"
#include "isobit/norm_linear/check.h"
#include "isobit/norms/cases.h"

namespace isobit::norm_linear {

std::vector<CaseGrid> forward_cases(std::string_view grid);
std::vector<CaseGrid> backward_cases(std::string_view grid);

// What a call must at least move and compute.
template <class Fused>
Cost forward_cost(const typename Fused::ForwardArgs& args) {
  const TensorView &norm_bias = detail::norm_bias_of(args), &mean = detail::mean_of(args);
  const double products = norms::elements(args.x) * static_cast<double>(args.weight.shape[0]);
  return {.bytes = norms::bytes({&args.x, &args.x_residual, &args.norm_weight, &norm_bias,
                                 &args.weight, &args.bias, &args.residual, &args.z, &args.pre,
                                 &args.sum, &args.y, &mean, &args.rstd}),
          .flops = 2 * products};
}

template <class Fused>
Cost backward_cost(const typename Fused::BackwardArgs& args) {
  const TensorView &norm_bias = detail::norm_bias_of(args),
                   &grad_norm_bias = detail::grad_norm_bias_of(args);
  const bool to_y = args.grad_x.given() || args.grad_x_residual.given() ||
                    args.grad_norm_weight.given() || grad_norm_bias.given();
  const double products = norms::elements(args.x) * static_cast<double>(args.weight.shape[0]);
  return {.bytes = norms::bytes({&args.grad_z, &args.x, &args.norm_weight, &norm_bias, &args.weight,
                                 &args.grad_sum, &args.grad_x, &args.grad_x_residual,
                                 &args.grad_norm_weight, &grad_norm_bias, &args.grad_weight,
                                 &args.grad_bias}) +
                   (args.activation == matmul::Activation::none ? 0 : norms::bytes({&args.pre})),
          .flops = 2 * products * (to_y + args.grad_weight.given())};
}

// A norm's errors, and those of a product that adds so many terms (src/isobit/ops/matmul).
inline double limit_of(std::int64_t terms, matmul::Arithmetic arithmetic) {
  const auto k = static_cast<double>(std::max<std::int64_t>(1, terms));
  if (arithmetic == matmul::Arithmetic::tensor) return 16 + 20 * std::ceil(k / 16);
  return 8 + 8 * std::sqrt(k);
}

template <class Args>
double forward_limit(const Args& args) {
  return limit_of(args.x.shape[static_cast<std::size_t>(args.x.rank - 1)], args.arithmetic);
}

// Of the longest sum: over features for y, over rows for the weight.
template <class Args>
double backward_limit(const Args& args) {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < static_cast<std::size_t>(args.x.rank); ++i)
    rows *= args.x.shape[i];
  return limit_of(std::max(rows, args.weight.shape[0]), args.arithmetic);
}

}  // namespace isobit::norm_linear
