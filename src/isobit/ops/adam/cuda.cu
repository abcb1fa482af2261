// SPDX-License-Identifier: Apache-2.0
// The variants of adam for GPUs, which are those of any optimiser.
#include "isobit/ops/adam/formula.h"
#include "isobit/ops/adam/problem.h"
#include "isobit/optimizers/cuda.h"

namespace isobit::adam {

std::span<const StepVariant> cuda_variants() {
  return optimizers::kCudaVariants<Rule, Args, Problem>;
}

}  // namespace isobit::adam
