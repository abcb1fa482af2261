// SPDX-License-Identifier: Apache-2.0
// The backward rows of the simd variants, compiled once for each instruction set.
#include "isobit/norms/cpu_backward_rows.h"
#include "isobit/ops/layernorm/cpu_kernels.h"
#include "isobit/ops/layernorm/formula.h"

namespace isobit::layernorm::ISOBIT_ISA {

norms::BackwardKernels backward_kernels(DType dtype, bool streaming) {
  return norms::backward_kernels<Formula, simd::F32, simd::F64>(dtype, streaming);
}

}  // namespace isobit::layernorm::ISOBIT_ISA
