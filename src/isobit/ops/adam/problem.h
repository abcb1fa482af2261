// SPDX-License-Identifier: Apache-2.0
// A call of adam after its check.
#pragma once

#include <span>

#include "isobit/ops/adam/adam.h"
#include "isobit/ops/adam/constants.h"
#include "isobit/optimizers/problem.h"

namespace isobit::adam {

using Problem = optimizers::Problem<Constants>;
using StepVariant = Variant<Args, Problem>;

std::span<const StepVariant> cpu_variants();
std::span<const StepVariant> cuda_variants();  // in device libraries

}  // namespace isobit::adam
