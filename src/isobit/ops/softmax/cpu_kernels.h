// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"

namespace isobit::softmax {

// A row of a call: forward makes y of x, backward grad_x of y and grad_y. The scratch of forward
// has room for the row in what is computed in, that of backward, which only a mask needs, for two.
struct ForwardRow {
  const std::byte *x, *mask;
  std::byte *y, *scratch;
  std::int64_t cols;
  double scale;
  bool streaming;
};
struct BackwardRow {
  const std::byte *y, *grad_y, *mask;
  std::byte *grad_x, *scratch;
  std::int64_t cols;
  double scale;
  bool streaming;
};
using ForwardKernel = void (*)(const ForwardRow& row);
using BackwardKernel = void (*)(const BackwardRow& row);

ISOBIT_IN_EACH_ISA(ForwardKernel forward_kernel(DType x, DType y, bool log);)
ISOBIT_IN_EACH_ISA(BackwardKernel backward_kernel(DType x, DType y, bool log);)

}  // namespace isobit::softmax
