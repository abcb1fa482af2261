// SPDX-License-Identifier: Apache-2.0
// The CPU variants of sgd, which are those of any optimiser.
#include "isobit/optimizers/cpu.h"

#include "isobit/ops/sgd/formula.h"
#include "isobit/ops/sgd/problem.h"

namespace isobit::sgd {

std::span<const StepVariant> cpu_variants() {
  return optimizers::kCpuVariants<Rule, Args, Problem>;
}

}  // namespace isobit::sgd
