// SPDX-License-Identifier: Apache-2.0
// Which cases dropout is verified and timed on, and what each must move.
#pragma once

#include <string_view>

#include "isobit/core/case.h"
#include "isobit/ops/dropout/dropout.h"

namespace isobit::dropout {

std::vector<CaseGrid> cases(std::string_view grid);
Cost cost(const Args& args);

}  // namespace isobit::dropout
