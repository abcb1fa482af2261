// SPDX-License-Identifier: Apache-2.0
// The variants of lion for GPUs, which are those of any optimiser.
#include "isobit/ops/lion/formula.h"
#include "isobit/ops/lion/problem.h"
#include "isobit/optimizers/cuda.h"

namespace isobit::lion {

std::span<const StepVariant> cuda_variants() {
  return optimizers::kCudaVariants<Rule, Args, Problem>;
}

}  // namespace isobit::lion
