// SPDX-License-Identifier: Apache-2.0
// What becomes of rows of s themselves: their sum, the gradient of a bias, and beta times each, the
// gradient of c.
#pragma once

#include "isobit/ops/matmul/cpu_regions.h"

namespace isobit::matmul {

// Products whose y is the gradient of the bias, or that of c, for what becomes of a sum.
Problem bias_problem(const Problem& rows);
Problem c_problem(const Problem& rows);

std::size_t rows_workspace(const Problem& rows, const Machine& machine);
void add_rows(const Problem& rows, const Execution& execution);

}  // namespace isobit::matmul
