// SPDX-License-Identifier: Apache-2.0
// What LayerNorm is verified and timed on, and what a call must at least move and compute.
#pragma once

#include "isobit/core/case.h"
#include "isobit/ops/layernorm/layernorm.h"

namespace isobit::layernorm {

// Grids: quick, test, full, bench, bench-quick.
std::vector<CaseGrid> forward_cases(std::string_view grid);
std::vector<CaseGrid> backward_cases(std::string_view grid);

Cost forward_cost(const ForwardArgs& args);
Cost backward_cost(const BackwardArgs& args);

}  // namespace isobit::layernorm
