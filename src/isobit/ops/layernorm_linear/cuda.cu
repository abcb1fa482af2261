// SPDX-License-Identifier: Apache-2.0
// The variants of LayerNorm and the linear layer that it feeds on GPUs.
#include "isobit/norm_linear/cuda_variants.h"
#include "isobit/ops/layernorm/formula.h"
#include "isobit/ops/layernorm_linear/fused.h"

namespace isobit::norm_linear {
template ForwardVariants<layernorm_linear::Fused> cuda_forward_variants<layernorm_linear::Fused>();
template BackwardVariants<layernorm_linear::Fused>
cuda_backward_variants<layernorm_linear::Fused>();
}  // namespace isobit::norm_linear
