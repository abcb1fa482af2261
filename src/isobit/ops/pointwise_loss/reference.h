// SPDX-License-Identifier: Apache-2.0
// The references that every variant is compared with.
#pragma once

#include "isobit/core/case.h"
#include "isobit/ops/pointwise_loss/pointwise_loss.h"

namespace isobit::pointwise_loss {

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale, const Rounding&);
void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale, const Rounding&);
void forward_intermediates(const ForwardArgs& exact, const Rounding&, const EmitArray& emit);
void backward_intermediates(const BackwardArgs& exact, const Rounding&, const EmitArray& emit);

}  // namespace isobit::pointwise_loss
