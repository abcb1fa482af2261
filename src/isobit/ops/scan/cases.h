// SPDX-License-Identifier: Apache-2.0
// The grids and floors of scan.
#pragma once

#include <string_view>
#include <vector>

#include "isobit/core/case.h"
#include "isobit/ops/scan/scan.h"

namespace isobit::scan {

std::vector<CaseGrid> cases(std::string_view grid);
Cost cost(const Args& args);
double limit(const Args& args);

}  // namespace isobit::scan
