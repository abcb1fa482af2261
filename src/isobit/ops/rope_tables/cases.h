// SPDX-License-Identifier: Apache-2.0
// Which cases rope_tables is verified and timed on, and what each must move.
#pragma once

#include <string_view>

#include "isobit/core/case.h"
#include "isobit/ops/rope_tables/rope_tables.h"

namespace isobit::rope_tables {

std::vector<CaseGrid> cases(std::string_view grid);
Cost cost(const Args& args);

}  // namespace isobit::rope_tables
