// SPDX-License-Identifier: Apache-2.0
// A call of rope_tables after its check.
#pragma once

#include <span>

#include "isobit/core/check.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/rope_tables/rope_tables.h"

namespace isobit::rope_tables {

// inv_freq has no data where it is computed.
struct Problem {
  DType dtype, inv_freq_dtype;
  Matrix cos, sin, inv_freq;
  const std::int64_t* positions = nullptr;  // null: 0, 1, 2, ...
  std::int64_t position_step = 0;           // elements
  std::int64_t offset = 0;
  double base = 0;
};

using RopeTablesVariant = Variant<Args, Problem>;

std::span<const RopeTablesVariant> cpu_variants();
std::span<const RopeTablesVariant> cuda_variants();  // in device libraries

}  // namespace isobit::rope_tables
