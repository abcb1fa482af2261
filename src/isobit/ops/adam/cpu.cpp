// SPDX-License-Identifier: Apache-2.0
// The CPU variants of adam, which are those of any optimiser.
#include "isobit/optimizers/cpu.h"

#include "isobit/ops/adam/formula.h"
#include "isobit/ops/adam/problem.h"

namespace isobit::adam {

std::span<const StepVariant> cpu_variants() {
  return optimizers::kCpuVariants<Rule, Args, Problem>;
}

}  // namespace isobit::adam
