// SPDX-License-Identifier: Apache-2.0
// RMSNorm's forward variants on GPUs.
#include "isobit/norms/cuda_forward.h"
#include "isobit/ops/rmsnorm/formula.h"
#include "isobit/ops/rmsnorm/problem.h"

namespace isobit::rmsnorm {

std::span<const ForwardVariant> cuda_forward_variants() {
  return norms::CudaForward<Formula, ForwardArgs>::variants();
}

}  // namespace isobit::rmsnorm
