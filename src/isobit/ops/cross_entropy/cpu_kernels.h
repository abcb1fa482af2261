// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"
#include "isobit/ops/cross_entropy/problem.h"

namespace isobit::cross_entropy {

// Each treats rows [begin, end). weights: the sum of all classes' weights, where each class has a
// share in the losses.
using ForwardKernel = void (*)(const ForwardProblem& problem, double weights, std::int64_t begin,
                               std::int64_t end);
using BackwardKernel = void (*)(const BackwardProblem& problem, double weights, std::int64_t begin,
                                std::int64_t end, bool streaming);

// smooth: the classes have a share in each loss.
ISOBIT_IN_EACH_ISA(ForwardKernel forward_kernel(DType x, bool smooth);)
ISOBIT_IN_EACH_ISA(BackwardKernel backward_kernel(DType x, bool smooth);)

}  // namespace isobit::cross_entropy
