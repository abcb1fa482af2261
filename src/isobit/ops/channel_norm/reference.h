// SPDX-License-Identifier: Apache-2.0
// The reference that every variant is compared with.
#pragma once

#include "isobit/core/case.h"
#include "isobit/ops/channel_norm/channel_norm.h"

namespace isobit::channel_norm {

void forward_reference(const ForwardCall& exact, const ForwardCall& scale);
void backward_reference(const BackwardCall& exact, const BackwardCall& scale);
void forward_intermediates(const ForwardCall& exact, const EmitArray& emit);
void backward_intermediates(const BackwardCall& exact, const EmitArray& emit);

}  // namespace isobit::channel_norm
