// SPDX-License-Identifier: Apache-2.0
// The reference that every variant is compared with.
#pragma once

#include "isobit/core/case.h"
#include "isobit/ops/sgd/sgd.h"
#include "isobit/optimizers/views.h"

namespace isobit::sgd {

// Its arrays by their roles.
optimizers::Views views_of(const Args& args);

void reference(const Args& exact, const Args& scale, const Rounding& rounding);
void intermediates(const Args& exact, const Rounding& rounding, const EmitArray& emit);

}  // namespace isobit::sgd
