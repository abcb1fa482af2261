// SPDX-License-Identifier: Apache-2.0
// Calls of softmax after their check.
#pragma once

#include <span>

#include "isobit/core/check.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/softmax/softmax.h"

namespace isobit::softmax {

struct ForwardProblem {
  std::int64_t rows, cols;
  DType x_dtype, y_dtype;
  Matrix x, mask, y;  // without a mask it has no data
  double scale;
  bool log;
};

struct BackwardProblem {
  std::int64_t rows, cols;
  DType x_dtype, y_dtype;  // of grad_x, and of y and grad_y
  Matrix y, grad_y, mask, grad_x;
  double scale;
  bool log;
};

// What is computed in.
inline DType real_of(DType x) { return x == DType::f64 ? DType::f64 : DType::f32; }

using ForwardVariant = Variant<ForwardArgs, ForwardProblem>;
using BackwardVariant = Variant<BackwardArgs, BackwardProblem>;

std::span<const ForwardVariant> cpu_forward_variants();
std::span<const BackwardVariant> cpu_backward_variants();
std::span<const ForwardVariant> cuda_forward_variants();  // in device libraries
std::span<const BackwardVariant> cuda_backward_variants();

}  // namespace isobit::softmax
