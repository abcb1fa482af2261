// SPDX-License-Identifier: Apache-2.0
// Which cases matmul is verified and timed on, what each must move, and how exact it must be.
#pragma once

#include <string_view>

#include "isobit/core/case.h"
#include "isobit/ops/matmul/matmul.h"

namespace isobit::matmul {

std::vector<CaseGrid> cases(std::string_view grid);
Cost cost(const Args& args);
double limit(const Args& args);

}  // namespace isobit::matmul
