// SPDX-License-Identifier: Apache-2.0
// LayerNorm's variants: of calls that all norms share.
#pragma once

#include <span>

#include "isobit/dispatch/variant.h"
#include "isobit/norms/problem.h"
#include "isobit/ops/layernorm/layernorm.h"

namespace isobit::layernorm {

using ForwardVariant = Variant<ForwardArgs, norms::ForwardProblem>;
using BackwardVariant = Variant<BackwardArgs, norms::BackwardProblem>;

std::span<const ForwardVariant> cpu_forward_variants();
std::span<const BackwardVariant> cpu_backward_variants();

// In device libraries.
std::span<const ForwardVariant> cuda_forward_variants();
std::span<const BackwardVariant> cuda_backward_variants();

}  // namespace isobit::layernorm
