// SPDX-License-Identifier: Apache-2.0
// Calls of cross_entropy after their check.
#pragma once

#include <span>

#include "isobit/core/check.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/cross_entropy/cross_entropy.h"

namespace isobit::cross_entropy {

// What both passes take.
struct Given {
  std::int64_t rows, cols;
  DType dtype;  // of x and its gradient
  Matrix x;
  const std::int64_t* target;
  const std::byte* weight;  // null where all are 1
  std::int64_t ignore_index;
  double label_smoothing, z_loss;

  // What is computed in, and the type of all that is not x.
  DType real() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
};

// Of what is not wanted there is no pointer.
struct ForwardProblem : Given {
  std::byte *loss, *lse, *largest, *sum, *total, *count;
};

struct BackwardProblem : Given {
  const std::byte *grad_loss, *largest, *sum;
  Matrix grad_x;
};

using ForwardVariant = Variant<ForwardArgs, ForwardProblem>;
using BackwardVariant = Variant<BackwardArgs, BackwardProblem>;

std::span<const ForwardVariant> cpu_forward_variants();
std::span<const BackwardVariant> cpu_backward_variants();
std::span<const ForwardVariant> cuda_forward_variants();  // in device libraries
std::span<const BackwardVariant> cuda_backward_variants();

}  // namespace isobit::cross_entropy
