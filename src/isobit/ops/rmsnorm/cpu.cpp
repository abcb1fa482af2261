// SPDX-License-Identifier: Apache-2.0
// RMSNorm's variants on the CPU.
#include "isobit/norms/cpu_variants.h"
#include "isobit/ops/rmsnorm/formula.h"
#include "isobit/ops/rmsnorm/norm.h"

namespace isobit::norms {
template ForwardVariants<rmsnorm::Norm> cpu_forward_variants<rmsnorm::Norm>();
template BackwardVariants<rmsnorm::Norm> cpu_backward_variants<rmsnorm::Norm>();
}  // namespace isobit::norms
