// SPDX-License-Identifier: Apache-2.0
// Which cases interpolate is verified and timed on, what each must move, and how large errors may
// be.
#pragma once

#include <string_view>

#include "isobit/core/case.h"
#include "isobit/ops/interpolate/interpolate.h"

namespace isobit::interpolate {

std::vector<CaseGrid> forward_cases(std::string_view grid);
std::vector<CaseGrid> backward_cases(std::string_view grid);
Cost forward_cost(const ForwardArgs& args);
Cost backward_cost(const BackwardArgs& args);
double forward_limit(const ForwardArgs& args);
double backward_limit(const BackwardArgs& args);

}  // namespace isobit::interpolate
