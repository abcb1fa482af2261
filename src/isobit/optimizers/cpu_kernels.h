// SPDX-License-Identifier: Apache-2.0
// What is compiled of an optimiser once for each instruction set, and called from code that is not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"
#include "isobit/optimizers/views.h"

namespace isobit::optimizers {

// Adjacent elements of each array; null where there is none.
struct Step {
  const std::byte *param, *grad, *state[kStates];
  std::byte *new_param, *narrow, *new_state[kStates];
};

template <class Rule>
using Kernel = void (*)(const Step& step, const typename Rule::template Constants<double>& given,
                        std::int64_t count);

// clang-format off
ISOBIT_IN_EACH_ISA(
template <class Rule>
struct Kernels {
  static Kernel<Rule> kernel(DType dtype, DType grad_dtype);
};
)
// clang-format on

}  // namespace isobit::optimizers
