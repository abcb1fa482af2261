// SPDX-License-Identifier: Apache-2.0
// Which cases reduce is verified and timed on, and what each must move.
#pragma once

#include <string_view>
#include <vector>

#include "isobit/core/case.h"
#include "isobit/ops/reduce/reduce.h"

namespace isobit::reduce {

std::vector<CaseGrid> forward_cases(std::string_view grid);
std::vector<CaseGrid> backward_cases(std::string_view grid);
Cost forward_cost(const ForwardArgs& args);
Cost backward_cost(const BackwardArgs& args);

}  // namespace isobit::reduce
