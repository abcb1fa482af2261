// SPDX-License-Identifier: Apache-2.0
// Which cases transpose is verified and timed on, what each must move, and how exact it must be.
#pragma once

#include <string_view>

#include "isobit/core/case.h"
#include "isobit/ops/transpose/transpose.h"

namespace isobit::transpose {

std::vector<CaseGrid> cases(std::string_view grid);
Cost cost(const Args& args);
double limit(const Args& args);

}  // namespace isobit::transpose
