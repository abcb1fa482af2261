// SPDX-License-Identifier: Apache-2.0
// A call of activation after its check: the same of both passes.
#pragma once

#include <span>

#include "isobit/core/check.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/activation/activation.h"

namespace isobit::activation {

// One row where all rows are adjacent. What is not given has no data.
struct Problem {
  Function function;
  DType dtype;
  Matrix x, gate, grad_y;
  Matrix y, grad_gate;  // y is grad_x in backward
};

using ForwardVariant = Variant<ForwardArgs, Problem>;
using BackwardVariant = Variant<BackwardArgs, Problem>;

std::span<const ForwardVariant> cpu_forward_variants();
std::span<const BackwardVariant> cpu_backward_variants();
std::span<const ForwardVariant> cuda_forward_variants();  // in device libraries
std::span<const BackwardVariant> cuda_backward_variants();

}  // namespace isobit::activation
