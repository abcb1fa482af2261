// SPDX-License-Identifier: Apache-2.0
// Calls of interpolate after their check.
#pragma once

#include <cstdint>
#include <span>

#include "isobit/core/dtype.h"
#include "isobit/core/images.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/interpolate/formula.h"
#include "isobit/ops/interpolate/interpolate.h"

namespace isobit::interpolate {

// Of both passes: x and y are their gradients in the second.
struct Problem {
  DType dtype = DType::f32;
  std::int64_t batch = 0, channels = 0;
  Axis h, w;
  Images x, y;

  ISOBIT_INLINE std::int64_t planes() const { return batch * channels; }
};

using ForwardVariant = Variant<ForwardArgs, Problem>;
using BackwardVariant = Variant<BackwardArgs, Problem>;

// Throw where a call breaks a rule.
Problem check_forward(const ForwardArgs& args);
Problem check_backward(const BackwardArgs& args);

std::span<const ForwardVariant> cpu_forward_variants();
std::span<const BackwardVariant> cpu_backward_variants();
std::span<const ForwardVariant> cuda_forward_variants();  // in device libraries
std::span<const BackwardVariant> cuda_backward_variants();

}  // namespace isobit::interpolate
