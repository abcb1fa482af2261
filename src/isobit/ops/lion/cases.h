// SPDX-License-Identifier: Apache-2.0
// Which cases lion is verified and timed on.
#pragma once

#include <string_view>
#include <vector>

#include "isobit/core/case.h"

namespace isobit::lion {

std::vector<CaseGrid> cases(std::string_view grid);

}  // namespace isobit::lion
