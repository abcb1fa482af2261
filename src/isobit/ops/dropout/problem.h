// SPDX-License-Identifier: Apache-2.0
// A call of dropout after its check.
#pragma once

#include <span>

#include "isobit/core/check.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/dropout/dropout.h"

namespace isobit::dropout {

struct Problem {
  DType dtype;
  Matrix x, y;
  double p;
  std::uint64_t seed;
};

using DropoutVariant = Variant<Args, Problem>;

std::span<const DropoutVariant> cpu_variants();
std::span<const DropoutVariant> cuda_variants();  // in device libraries

}  // namespace isobit::dropout
