// SPDX-License-Identifier: Apache-2.0
// A call of random after its check. Its numbers stay in the arguments.
#pragma once

#include <span>

#include "isobit/core/check.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/random/random.h"

namespace isobit::random {

struct Problem {
  DType dtype;
  Matrix y;
};

using RandomVariant = Variant<Args, Problem>;

std::span<const RandomVariant> cpu_variants();
std::span<const RandomVariant> cuda_variants();  // in device libraries

}  // namespace isobit::random
