// SPDX-License-Identifier: Apache-2.0
// The grids of adam.
#include "isobit/ops/adam/cases.h"

#include "isobit/optimizers/cases.h"

namespace isobit::adam {

std::vector<CaseGrid> cases(std::string_view grid) {
  return optimizers::cases(
      grid, {{"step", {1, 1000}}, {"weight_decay", {0, 0.0625}}, {"maximize", {0}}},
      {{"step", {10}}, {"weight_decay", {0.01}}, {"decoupled", {1}}, {"maximize", {0}}},
      {"", "max_exp_avg_sq+new_max_exp_avg_sq"});
}

}  // namespace isobit::adam
