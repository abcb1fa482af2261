// SPDX-License-Identifier: Apache-2.0
// Which cases random is verified and timed on, and what each must move.
#pragma once

#include <string_view>

#include "isobit/core/case.h"
#include "isobit/ops/random/random.h"

namespace isobit::random {

std::vector<CaseGrid> cases(std::string_view grid);
Cost cost(const Args& args);

}  // namespace isobit::random
