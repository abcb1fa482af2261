// SPDX-License-Identifier: Apache-2.0
// The variants of sgd for GPUs, which are those of any optimiser.
#include "isobit/ops/sgd/formula.h"
#include "isobit/ops/sgd/problem.h"
#include "isobit/optimizers/cuda.h"

namespace isobit::sgd {

std::span<const StepVariant> cuda_variants() {
  return optimizers::kCudaVariants<Rule, Args, Problem>;
}

}  // namespace isobit::sgd
