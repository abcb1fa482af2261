// SPDX-License-Identifier: Apache-2.0
// Which cases convolutions are verified and timed on, what each must move, and how exact it must
// be.
#pragma once

#include <string_view>

#include "isobit/core/case.h"
#include "isobit/ops/convolution/convolution.h"

namespace isobit::convolution {

// Of one dimension or two.
std::vector<CaseGrid> forward_cases(int dims, std::string_view grid);
Cost forward_cost(const ForwardArgs& args);
double forward_limit(const ForwardArgs& args);

std::vector<CaseGrid> backward_cases(int dims, std::string_view grid);
Cost backward_cost(const BackwardArgs& args);
double backward_limit(const BackwardArgs& args);

}  // namespace isobit::convolution
