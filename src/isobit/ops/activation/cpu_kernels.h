// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"
#include "isobit/ops/activation/activation.h"
#include "isobit/ops/activation/cpu_tables.h"

namespace isobit::activation {

// Adjacent elements of all arrays of a call; null where there is none. y is grad_x in backward.
struct Arrays {
  const std::byte *x, *gate, *grad_y;
  std::byte *y, *grad_gate;
};
// `count` elements: forward without grad_y, backward with it.
using Kernel = void (*)(const Arrays& arrays, std::int64_t count, bool streaming);

ISOBIT_IN_EACH_ISA(Kernel forward_kernel(Function function, DType dtype, bool gated);)
ISOBIT_IN_EACH_ISA(Kernel backward_kernel(Function function, DType dtype, bool gated);)

// The same from tables: f(x) itself, or products with what is looked up. `formula` serves where
// those might have other bits.
using LookupKernel = void (*)(const Arrays& arrays, std::int64_t count, bool streaming,
                              const Tables& tables, Kernel formula);

ISOBIT_IN_EACH_ISA(LookupKernel lookup_kernel(DType dtype, bool products, bool grad_gate);)

}  // namespace isobit::activation
