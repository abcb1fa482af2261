// SPDX-License-Identifier: Apache-2.0
// Which cases group_norm and batch_norm are verified and timed on, and what each must move.
#pragma once

#include <string_view>
#include <vector>

#include "isobit/core/case.h"
#include "isobit/ops/channel_norm/channel_norm.h"

namespace isobit::channel_norm {

// groups: of group_norm, else of batch_norm.
std::vector<CaseGrid> forward_cases(bool groups, std::string_view grid);
std::vector<CaseGrid> backward_cases(bool groups, std::string_view grid);
Cost forward_cost(const ForwardCall& call);
Cost backward_cost(const BackwardCall& call);

}  // namespace isobit::channel_norm
