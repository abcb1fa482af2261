// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"
#include "isobit/ops/softmax/problem.h"

namespace isobit::softmax {

// Rows [begin, end) of a call. The scratch of forward has room for a row in what is computed in,
// that of backward, which only a mask needs, for two. Where `streaming`, a fence must follow.
using ForwardKernel = void (*)(const ForwardProblem& problem, std::int64_t begin, std::int64_t end,
                               std::byte* scratch, bool streaming);
using BackwardKernel = void (*)(const BackwardProblem& problem, std::int64_t begin,
                                std::int64_t end, std::byte* scratch, bool streaming);

ISOBIT_IN_EACH_ISA(ForwardKernel forward_kernel(DType x, DType y, bool log);)
ISOBIT_IN_EACH_ISA(BackwardKernel backward_kernel(DType x, DType y, bool log);)

}  // namespace isobit::softmax
