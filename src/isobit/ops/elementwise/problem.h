// SPDX-License-Identifier: Apache-2.0
// A call of elementwise after its check.
#pragma once

#include <span>

#include "isobit/core/check.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/elementwise/elementwise.h"

namespace isobit::elementwise {

struct Problem {
  Kind kind;
  DType dtype;
  Matrix x, residual, y;  // one row where all rows are adjacent
};

using ElementwiseVariant = Variant<Args, Problem>;

std::span<const ElementwiseVariant> cpu_variants();
std::span<const ElementwiseVariant> cuda_variants();  // in device libraries

}  // namespace isobit::elementwise
