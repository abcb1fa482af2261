// SPDX-License-Identifier: Apache-2.0
// LayerNorm calls after their checks.
#pragma once

#include <span>

#include "isobit/core/check.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/layernorm/layernorm.h"

namespace isobit::layernorm {

struct ForwardProblem {
  std::int64_t rows, cols;
  DType dtype, weight_dtype;  // of x and y; of weight and bias
  Matrix x, y;
  void *weight, *bias;  // null where absent, like all that follow
  float *mean, *rstd;
  float eps;
};

struct BackwardProblem {
  std::int64_t rows, cols;
  DType dtype, weight_dtype;  // of x, grad_y and grad_x; of weight and its gradients
  Matrix x, grad_y, grad_x;
  bool wants_grad_x;
  void *weight, *grad_weight, *grad_bias;
  const float *mean, *rstd;
  float eps;

  bool wants_sums() const { return grad_weight != nullptr || grad_bias != nullptr; }
};

using ForwardVariant = Variant<ForwardArgs, ForwardProblem>;
using BackwardVariant = Variant<BackwardArgs, BackwardProblem>;

std::span<const ForwardVariant> cpu_forward_variants();
std::span<const BackwardVariant> cpu_backward_variants();

}  // namespace isobit::layernorm
