// SPDX-License-Identifier: Apache-2.0
// The variants of RMSNorm and the linear layer that it feeds on GPUs.
#include "isobit/norm_linear/cuda_variants.h"
#include "isobit/ops/rmsnorm/formula.h"
#include "isobit/ops/rmsnorm_linear/fused.h"

namespace isobit::norm_linear {
template ForwardVariants<rmsnorm_linear::Fused> cuda_forward_variants<rmsnorm_linear::Fused>();
template BackwardVariants<rmsnorm_linear::Fused> cuda_backward_variants<rmsnorm_linear::Fused>();
}  // namespace isobit::norm_linear
