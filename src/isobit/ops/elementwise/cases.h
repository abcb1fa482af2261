// SPDX-License-Identifier: Apache-2.0
// Which cases elementwise is verified and timed on, and what each must move.
#pragma once

#include <string_view>

#include "isobit/core/case.h"
#include "isobit/ops/elementwise/elementwise.h"

namespace isobit::elementwise {

std::vector<CaseGrid> cases(std::string_view grid);
Cost cost(const Args& args);

}  // namespace isobit::elementwise
