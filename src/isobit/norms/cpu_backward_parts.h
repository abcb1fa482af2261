// SPDX-License-Identifier: Apache-2.0
// What the one pass and the two passes share.
#pragma once

#include "isobit/core/order.h"
#include "isobit/norms/cpu_backward.h"
#include "isobit/norms/cpu_column_sums.h"
#include "isobit/simd/tasks.h"

namespace isobit::norms {

// Writes the weight gradients of columns [begin, end) from their sums; no sums at all are +0.
void finish(const BackwardProblem& problem, const Tools& tools, const std::byte* weight_sums,
            const std::byte* bias_sums, std::int64_t begin, std::int64_t end);

std::int64_t task_count(const BackwardProblem& problem, const Machine& machine, std::int64_t units);

// Runs of rows in order.h's sum over rows.
std::int64_t runs_of(const BackwardProblem& problem);

// Bytes of a RowTerms.

}  // namespace isobit::norms
