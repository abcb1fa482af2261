// SPDX-License-Identifier: Apache-2.0
// RMSNorm's backward variants on GPUs.
#include "isobit/norms/cuda_backward.h"
#include "isobit/ops/rmsnorm/formula.h"
#include "isobit/ops/rmsnorm/norm.h"

namespace isobit::norms {
template BackwardVariants<rmsnorm::Norm> cuda_backward_variants<rmsnorm::Norm>();
}  // namespace isobit::norms
