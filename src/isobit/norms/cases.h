// SPDX-License-Identifier: Apache-2.0
// The grids that norms are verified and timed on, and what their calls must move and compute.
#pragma once

#include "isobit/core/case.h"
#include "isobit/core/tensor_view.h"

namespace isobit::norms {

// Grids: quick, test, full, bench, bench-quick. An operator without such a grid says so by name.
std::vector<CaseGrid> forward_cases(std::string_view op, std::string_view grid);
std::vector<CaseGrid> backward_cases(std::string_view op, std::string_view grid);

double elements(const TensorView& view);

// Each array given moves once.
double bytes(std::initializer_list<const TensorView*> views);

// Operations of an element, an fma counted as two.
inline constexpr double kOne = 1;    // a product with weight, a sum with bias, a residual's
inline constexpr double kTwo = 2;    // a product that is summed up
inline constexpr double kScale = 1;  // x_hat of what is centred

}  // namespace isobit::norms
