// SPDX-License-Identifier: Apache-2.0
// Calls of linear_cross_entropy after their check: a product, and losses of its rows.
#pragma once

#include <span>

#include "isobit/core/matrix_views.h"
#include "isobit/core/tensor_view.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/cross_entropy/problem.h"
#include "isobit/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "isobit/ops/matmul/problem.h"

namespace isobit::linear_cross_entropy {

// Views have rank 2 but for those of biases; those that are absent have rank 0.
struct Product {
  DType dtype = DType::f32;
  std::int64_t rows = 0, cols = 0, classes = 0;
  TensorView x, weight, bias;
};

// The losses are those of logits that are nowhere yet.
struct ForwardProblem {
  Product product;
  cross_entropy::ForwardProblem losses;
};
struct BackwardProblem {
  Product product;
  cross_entropy::BackwardProblem losses;
  TensorView grad_x, grad_weight, grad_bias;
};

using ForwardVariant = Variant<ForwardArgs, ForwardProblem>;
using BackwardVariant = Variant<BackwardArgs, BackwardProblem>;

std::span<const ForwardVariant> cpu_forward_variants();
std::span<const BackwardVariant> cpu_backward_variants();
std::span<const ForwardVariant> cuda_forward_variants();  // in device libraries
std::span<const BackwardVariant> cuda_backward_variants();

}  // namespace isobit::linear_cross_entropy
