// SPDX-License-Identifier: Apache-2.0
// The reference that every variant is compared with.
#pragma once

#include "isobit/core/case.h"
#include "isobit/ops/rope_tables/rope_tables.h"

namespace isobit::rope_tables {

void reference(const Args& exact, const Args& scale, const Rounding&);
void intermediates(const Args& exact, const Rounding&, const EmitArray& emit);

}  // namespace isobit::rope_tables
