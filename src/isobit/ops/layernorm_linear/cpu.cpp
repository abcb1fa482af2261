// SPDX-License-Identifier: Apache-2.0
// The variants of LayerNorm and the linear layer that it feeds on the CPU.
#include "isobit/norm_linear/cpu_variants.h"
#include "isobit/ops/layernorm/formula.h"
#include "isobit/ops/layernorm_linear/fused.h"

namespace isobit::norm_linear {
template ForwardVariants<layernorm_linear::Fused> cpu_forward_variants<layernorm_linear::Fused>();
template BackwardVariants<layernorm_linear::Fused> cpu_backward_variants<layernorm_linear::Fused>();
}  // namespace isobit::norm_linear
