// SPDX-License-Identifier: Apache-2.0
// The CPU variants of lion, which are those of any optimiser.
#include "isobit/optimizers/cpu.h"

#include "isobit/ops/lion/formula.h"
#include "isobit/ops/lion/problem.h"

namespace isobit::lion {

std::span<const StepVariant> cpu_variants() {
  return optimizers::kCpuVariants<Rule, Args, Problem>;
}

}  // namespace isobit::lion
