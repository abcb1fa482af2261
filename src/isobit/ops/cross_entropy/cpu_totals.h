// SPDX-License-Identifier: Apache-2.0
// The sums over rows, for whoever has their losses.
#pragma once

#include "isobit/ops/cross_entropy/problem.h"

namespace isobit::cross_entropy {

// total and count, each where it is wanted, from problem.loss.
void add_totals(const ForwardProblem& problem);

}  // namespace isobit::cross_entropy
