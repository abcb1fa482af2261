// SPDX-License-Identifier: Apache-2.0
// RMSNorm's backward variants on GPUs.
#include "isobit/norms/cuda_backward.h"
#include "isobit/ops/rmsnorm/formula.h"
#include "isobit/ops/rmsnorm/problem.h"

namespace isobit::rmsnorm {

std::span<const BackwardVariant> cuda_backward_variants() {
  return norms::CudaBackward<Formula, BackwardArgs>::variants();
}

}  // namespace isobit::rmsnorm
