// SPDX-License-Identifier: Apache-2.0
// The grids of sgd.
#include "isobit/ops/sgd/cases.h"

#include "isobit/optimizers/cases.h"

namespace isobit::sgd {

std::vector<CaseGrid> cases(std::string_view grid) {
  return optimizers::cases(
      grid, {{"momentum", {0, 0.875}}, {"dampening", {0.125}}, {"weight_decay", {0, 0.0625}}},
      {{"momentum", {0.9}}, {"nesterov", {0}}, {"maximize", {0}}}, {""});
}

}  // namespace isobit::sgd
