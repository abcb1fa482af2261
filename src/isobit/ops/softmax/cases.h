// SPDX-License-Identifier: Apache-2.0
// Which cases softmax is verified and timed on, and what each must move.
#pragma once

#include <string_view>

#include "isobit/core/case.h"
#include "isobit/ops/softmax/softmax.h"

namespace isobit::softmax {

std::vector<CaseGrid> forward_cases(std::string_view grid);
std::vector<CaseGrid> backward_cases(std::string_view grid);
Cost forward_cost(const ForwardArgs& args);
Cost backward_cost(const BackwardArgs& args);

}  // namespace isobit::softmax
