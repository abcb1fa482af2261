// SPDX-License-Identifier: Apache-2.0
// What attention tells about its cases.
#pragma once

#include <string_view>
#include <vector>

#include "isobit/core/case.h"
#include "isobit/ops/attention/attention.h"

namespace isobit::attention {

std::vector<CaseGrid> forward_cases(std::string_view grid);
std::vector<CaseGrid> backward_cases(std::string_view grid);
Cost forward_cost(const ForwardArgs& args);
Cost backward_cost(const BackwardArgs& args);
double forward_limit(const ForwardArgs& args);
double backward_limit(const BackwardArgs& args);

}  // namespace isobit::attention
