// SPDX-License-Identifier: Apache-2.0
// The grids of lion.
#include "isobit/ops/lion/cases.h"

#include "isobit/optimizers/cases.h"

namespace isobit::lion {

std::vector<CaseGrid> cases(std::string_view grid) {
  return optimizers::cases(grid, {{"weight_decay", {0, 0.0625}}},
                           {{"weight_decay", {0.01}}, {"maximize", {0}}}, {""});
}

}  // namespace isobit::lion
