// SPDX-License-Identifier: Apache-2.0
// The scalar variants: the formulas in the canonical order and nothing else, to be read and to be
// compared with.
#pragma once

#include "isobit/ops/layernorm/formula.h"
#include "isobit/ops/layernorm/problem.h"

namespace isobit::layernorm {

void scalar_forward_rows(const ForwardProblem& problem, std::int64_t begin, std::int64_t end);

// First the statistics of every row, then grad_x of rows and the weight gradients of columns.
void scalar_statistics(const BackwardProblem& problem, std::int64_t begin, std::int64_t end,
                       Statistics* statistics);
void scalar_grad_x(const BackwardProblem& problem, const Statistics* statistics, std::int64_t begin,
                   std::int64_t end);
void scalar_weight_gradients(const BackwardProblem& problem, const Statistics* statistics,
                             std::int64_t first_col, std::int64_t last_col);

}  // namespace isobit::layernorm
