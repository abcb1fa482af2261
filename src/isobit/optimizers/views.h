// SPDX-License-Identifier: Apache-2.0
// The arrays of any optimiser by their roles, whatever its arguments are called.
#pragma once

#include "isobit/core/tensor_view.h"

namespace isobit::optimizers {

inline constexpr int kStates = 3;  // of a parameter, at most

// State k is written to new_state[k]. What is not given has rank 0.
struct Views {
  TensorView param, grad, state[kStates];
  TensorView new_param, new_state[kStates], narrow;
};

}  // namespace isobit::optimizers
