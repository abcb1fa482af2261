// SPDX-License-Identifier: Apache-2.0
// LayerNorm's forward variants on GPUs.
#include "isobit/norms/cuda_forward.h"
#include "isobit/ops/layernorm/formula.h"
#include "isobit/ops/layernorm/problem.h"

namespace isobit::layernorm {

std::span<const ForwardVariant> cuda_forward_variants() {
  return norms::CudaForward<Formula, ForwardArgs>::variants();
}

}  // namespace isobit::layernorm
