// SPDX-License-Identifier: Apache-2.0
// A call of sgd after its check.
#pragma once

#include <span>

#include "isobit/ops/sgd/constants.h"
#include "isobit/ops/sgd/sgd.h"
#include "isobit/optimizers/problem.h"

namespace isobit::sgd {

using Problem = optimizers::Problem<Constants>;
using StepVariant = Variant<Args, Problem>;

std::span<const StepVariant> cpu_variants();
std::span<const StepVariant> cuda_variants();  // in device libraries

}  // namespace isobit::sgd
