// SPDX-License-Identifier: Apache-2.0
// RMSNorm's forward variants on GPUs.
#include "isobit/norms/cuda_forward.h"
#include "isobit/ops/rmsnorm/formula.h"
#include "isobit/ops/rmsnorm/norm.h"

namespace isobit::norms {
template ForwardVariants<rmsnorm::Norm> cuda_forward_variants<rmsnorm::Norm>();
}  // namespace isobit::norms
