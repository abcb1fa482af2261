// SPDX-License-Identifier: Apache-2.0
// Which cases linear_cross_entropy is verified and timed on, what each must move and compute, and
// how exact it must be.
#pragma once

#include <string_view>

#include "isobit/core/case.h"
#include "isobit/ops/linear_cross_entropy/linear_cross_entropy.h"

namespace isobit::linear_cross_entropy {

std::vector<CaseGrid> forward_cases(std::string_view grid);
Cost forward_cost(const ForwardArgs& args);
double forward_limit(const ForwardArgs& args);

std::vector<CaseGrid> backward_cases(std::string_view grid);
Cost backward_cost(const BackwardArgs& args);
double backward_limit(const BackwardArgs& args);

}  // namespace isobit::linear_cross_entropy
