// SPDX-License-Identifier: Apache-2.0
// The variants of RMSNorm and the linear layer that it feeds on the CPU.
#include "isobit/norm_linear/cpu_variants.h"
#include "isobit/ops/rmsnorm/formula.h"
#include "isobit/ops/rmsnorm_linear/fused.h"

namespace isobit::norm_linear {
template ForwardVariants<rmsnorm_linear::Fused> cpu_forward_variants<rmsnorm_linear::Fused>();
template BackwardVariants<rmsnorm_linear::Fused> cpu_backward_variants<rmsnorm_linear::Fused>();
}  // namespace isobit::norm_linear
