// SPDX-License-Identifier: Apache-2.0
// Which cases cross_entropy is verified and timed on, and what each must move.
#pragma once

#include <string_view>

#include "isobit/core/case.h"
#include "isobit/ops/cross_entropy/cross_entropy.h"

namespace isobit::cross_entropy {

std::vector<CaseGrid> forward_cases(std::string_view grid);
std::vector<CaseGrid> backward_cases(std::string_view grid);
Cost forward_cost(const ForwardArgs& args);
Cost backward_cost(const BackwardArgs& args);

}  // namespace isobit::cross_entropy
