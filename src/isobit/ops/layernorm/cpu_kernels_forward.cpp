// SPDX-License-Identifier: Apache-2.0
// The forward rows of the simd variant, compiled once for each instruction set.
#include "isobit/norms/cpu_forward_rows.h"
#include "isobit/ops/layernorm/cpu_kernels.h"
#include "isobit/ops/layernorm/formula.h"

namespace isobit::layernorm::ISOBIT_ISA {

norms::ForwardKernel forward_kernel(DType dtype, norms::Schedule schedule) {
  return norms::forward_kernel<Formula, simd::F32, simd::F64>(dtype, schedule);
}

}  // namespace isobit::layernorm::ISOBIT_ISA
