// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"

namespace isobit::cross_entropy {

// A row and the weights of its classes, null where all are 1.
struct ForwardRow {
  const std::byte *x, *weight;
  std::int64_t cols;
};
// Numbers that are computed in float or double: the largest element, the sum of e^(x - largest),
// and where it is wanted, that of w (x - largest).
struct RowSums {
  double largest, sum, differences;
};
struct BackwardRow {
  const std::byte *x, *weight;
  std::byte* grad_x;
  std::int64_t cols, target;
  double largest, by_weight, by_class, at_target;  // formula.h's Factors
  bool streaming;
};
using ForwardKernel = RowSums (*)(const ForwardRow& row);
using BackwardKernel = void (*)(const BackwardRow& row);

// smooth: the classes have a share in each loss.
ISOBIT_IN_EACH_ISA(ForwardKernel forward_kernel(DType x, bool smooth);)
ISOBIT_IN_EACH_ISA(BackwardKernel backward_kernel(DType x, bool smooth);)

}  // namespace isobit::cross_entropy
