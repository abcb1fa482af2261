// SPDX-License-Identifier: Apache-2.0
// LayerNorm's backward variants on GPUs.
#include "isobit/norms/cuda_backward.h"
#include "isobit/ops/layernorm/formula.h"
#include "isobit/ops/layernorm/norm.h"

namespace isobit::norms {
template BackwardVariants<layernorm::Norm> cuda_backward_variants<layernorm::Norm>();
}  // namespace isobit::norms
