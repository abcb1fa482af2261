// SPDX-License-Identifier: Apache-2.0
// The operator as one would write it, in a wider type.
#pragma once

#include "isobit/core/case.h"
#include "isobit/ops/scan/scan.h"

namespace isobit::scan {

void reference(const Args& exact, const Args& scale, const Rounding& rounding);
void intermediates(const Args& exact, const Rounding& rounding, const EmitArray& emit);

}  // namespace isobit::scan
