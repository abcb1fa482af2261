// SPDX-License-Identifier: Apache-2.0
// The reference that every variant is compared with.
#pragma once

#include "isobit/core/case.h"
#include "isobit/ops/convolution/convolution.h"

namespace isobit::convolution {

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale);
void forward_intermediates(const ForwardArgs& exact, const EmitArray& emit);

void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale);
void backward_intermediates(const BackwardArgs& exact, const EmitArray& emit);

}  // namespace isobit::convolution
