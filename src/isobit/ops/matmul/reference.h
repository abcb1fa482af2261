// SPDX-License-Identifier: Apache-2.0
// The reference that every variant is compared with.
#pragma once

#include "isobit/core/case.h"
#include "isobit/ops/matmul/matmul.h"

namespace isobit::matmul {

void reference(const Args& exact, const Args& scale, const Rounding&);
void intermediates(const Args& exact, const Rounding&, const EmitArray& emit);

}  // namespace isobit::matmul
