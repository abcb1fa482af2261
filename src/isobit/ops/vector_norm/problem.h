// SPDX-License-Identifier: Apache-2.0
// A call of vector_norm after its check.
#pragma once

#include <span>

#include "isobit/core/check.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/vector_norm/vector_norm.h"

namespace isobit::vector_norm {

struct Problem {
  Order order;
  DType dtype;
  Matrix x;
  std::byte* norm;
  std::int64_t rows, cols;
};

using NormVariant = Variant<Args, Problem>;

std::span<const NormVariant> cpu_variants();
std::span<const NormVariant> cuda_variants();  // in device libraries

}  // namespace isobit::vector_norm
