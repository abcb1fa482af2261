// SPDX-License-Identifier: Apache-2.0
// What the cpu_kernels files offer once for each instruction set.
#pragma once

#include "isobit/norms/cpu_kernels.h"

namespace isobit::rmsnorm {

namespace scalar {
norms::ForwardKernel forward_kernel(DType dtype, norms::Schedule schedule);
norms::BackwardKernels backward_kernels(DType dtype, bool streaming);
}  // namespace scalar
namespace avx2 {
norms::ForwardKernel forward_kernel(DType dtype, norms::Schedule schedule);
norms::BackwardKernels backward_kernels(DType dtype, bool streaming);
}  // namespace avx2
namespace avx512 {
norms::ForwardKernel forward_kernel(DType dtype, norms::Schedule schedule);
norms::BackwardKernels backward_kernels(DType dtype, bool streaming);
}  // namespace avx512
namespace neon {
norms::ForwardKernel forward_kernel(DType dtype, norms::Schedule schedule);
norms::BackwardKernels backward_kernels(DType dtype, bool streaming);
}  // namespace neon

}  // namespace isobit::rmsnorm
