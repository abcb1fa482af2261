// SPDX-License-Identifier: Apache-2.0
// The reference that every variant is compared with.
#pragma once

#include "isobit/core/case.h"
#include "isobit/ops/reduce/reduce.h"

namespace isobit::reduce {

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale,
                       const Rounding& rounding);
void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale,
                        const Rounding& rounding);
void forward_intermediates(const ForwardArgs& exact, const Rounding& rounding,
                           const EmitArray& emit);
void backward_intermediates(const BackwardArgs& exact, const Rounding& rounding,
                            const EmitArray& emit);

}  // namespace isobit::reduce
