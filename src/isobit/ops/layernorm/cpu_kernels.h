// SPDX-License-Identifier: Apache-2.0
// What the cpu_kernels files offer once for each instruction set.
#pragma once

#include "isobit/core/isas.h"
#include "isobit/norms/cpu_kernels.h"

namespace isobit::layernorm {

ISOBIT_IN_EACH_ISA(norms::ForwardKernel forward_kernel(DType dtype, norms::Schedule schedule);
                   norms::BackwardKernels backward_kernels(DType dtype, bool streaming);)

}  // namespace isobit::layernorm
