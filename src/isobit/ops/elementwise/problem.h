// SPDX-License-Identifier: Apache-2.0
// An elementwise call after its check.
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

using CpuVariant = Variant<Args, Problem>;

std::span<const CpuVariant> cpu_variants();

}  // namespace isobit::elementwise
