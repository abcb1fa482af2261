// SPDX-License-Identifier: Apache-2.0
// LayerNorm's forward variants on GPUs.
#include "isobit/norms/cuda_forward.h"
#include "isobit/ops/layernorm/formula.h"
#include "isobit/ops/layernorm/norm.h"

namespace isobit::norms {
template ForwardVariants<layernorm::Norm> cuda_forward_variants<layernorm::Norm>();
}  // namespace isobit::norms
