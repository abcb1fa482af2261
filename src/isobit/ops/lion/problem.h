// SPDX-License-Identifier: Apache-2.0
// A call of lion after its check.
#pragma once

#include <span>

#include "isobit/ops/lion/constants.h"
#include "isobit/ops/lion/lion.h"
#include "isobit/optimizers/problem.h"

namespace isobit::lion {

using Problem = optimizers::Problem<Constants>;
using StepVariant = Variant<Args, Problem>;

std::span<const StepVariant> cpu_variants();
std::span<const StepVariant> cuda_variants();  // in device libraries

}  // namespace isobit::lion
