// SPDX-License-Identifier: Apache-2.0
// LayerNorm's variants on the CPU.
#include "isobit/norms/cpu_variants.h"
#include "isobit/ops/layernorm/formula.h"
#include "isobit/ops/layernorm/norm.h"

namespace isobit::norms {
template ForwardVariants<layernorm::Norm> cpu_forward_variants<layernorm::Norm>();
template BackwardVariants<layernorm::Norm> cpu_backward_variants<layernorm::Norm>();
}  // namespace isobit::norms
