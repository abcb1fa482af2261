// SPDX-License-Identifier: Apache-2.0
// The sums over rows on a GPU, for whoever has their losses there.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/ops/cross_entropy/problem.h"

namespace isobit::cross_entropy {

// total and count, each where it is wanted, from problem.loss.
void launch_totals(const ForwardProblem& problem, const Execution& execution);

}  // namespace isobit::cross_entropy
