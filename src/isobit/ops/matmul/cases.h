// SPDX-License-Identifier: Apache-2.0
// Which cases matmul is verified and timed on, what each must move, and how exact it must be.
#pragma once

#include <string_view>

#include "isobit/core/case.h"
#include "isobit/ops/matmul/matmul.h"

namespace isobit::matmul {

std::vector<CaseGrid> forward_cases(std::string_view grid);
Cost forward_cost(const ForwardArgs& args);
double forward_limit(const ForwardArgs& args);

std::vector<CaseGrid> backward_cases(std::string_view grid);
Cost backward_cost(const BackwardArgs& args);
double backward_limit(const BackwardArgs& args);

}  // namespace isobit::matmul
