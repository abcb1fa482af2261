// SPDX-License-Identifier: Apache-2.0
// Which cases vector_norm is verified and timed on, and what each must move.
#pragma once

#include <string_view>

#include "isobit/core/case.h"
#include "isobit/ops/vector_norm/vector_norm.h"

namespace isobit::vector_norm {

std::vector<CaseGrid> cases(std::string_view grid);
Cost cost(const Args& args);

}  // namespace isobit::vector_norm
