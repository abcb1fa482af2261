// SPDX-License-Identifier: Apache-2.0
// c = a * b, of matrices of 16 x 16 by rows.
#pragma once

#include "isobit/core/dtype.h"

namespace isobit::simt {

void product(const bf16* a, const bf16* b, float* c);
void product(const f16* a, const f16* b, float* c);

}  // namespace isobit::simt
