// SPDX-License-Identifier: Apache-2.0
// A call of pointwise_loss after its check: the same of both passes.
#pragma once

#include <span>

#include "isobit/core/check.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/pointwise_loss/pointwise_loss.h"

namespace isobit::pointwise_loss {

// What is not given has no data.
struct Problem {
  Kind kind;
  double beta;
  DType dtype;
  Matrix x, target, weight, pos_weight;
  Matrix loss;    // of forward, or grad_loss
  Matrix grad_x;  // of backward
};

using ForwardVariant = Variant<ForwardArgs, Problem>;
using BackwardVariant = Variant<BackwardArgs, Problem>;

std::span<const ForwardVariant> cpu_forward_variants();
std::span<const BackwardVariant> cpu_backward_variants();
std::span<const ForwardVariant> cuda_forward_variants();  // in device libraries
std::span<const BackwardVariant> cuda_backward_variants();

}  // namespace isobit::pointwise_loss
