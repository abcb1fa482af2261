// SPDX-License-Identifier: Apache-2.0
// The reference that every variant is compared with.
#pragma once

#include "isobit/core/case.h"
#include "isobit/ops/dropout/dropout.h"

namespace isobit::dropout {

void reference(const Args& exact, const Args& scale, const Rounding& rounding);
void intermediates(const Args& exact, const Rounding& rounding, const EmitArray& emit);

}  // namespace isobit::dropout
