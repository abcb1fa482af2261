// SPDX-License-Identifier: Apache-2.0
// LayerNorm's backward variants on GPUs.
#include "isobit/norms/cuda_backward.h"
#include "isobit/ops/layernorm/formula.h"
#include "isobit/ops/layernorm/problem.h"

namespace isobit::layernorm {

std::span<const BackwardVariant> cuda_backward_variants() {
  return norms::CudaBackward<Formula, BackwardArgs>::variants();
}

}  // namespace isobit::layernorm
