// SPDX-License-Identifier: Apache-2.0
// What is left of a call of any optimiser after its check.
#pragma once

#include "isobit/core/check.h"
#include "isobit/dispatch/variant.h"
#include "isobit/optimizers/views.h"

namespace isobit::optimizers {

// One row where all rows are adjacent. What is not given has no data.
struct Arrays {
  DType dtype;       // of the parameter, of its states and of what is computed in
  DType grad_dtype;  // of the gradient and of `narrow`
  Matrix param, grad, state[kStates];
  Matrix new_param, narrow, new_state[kStates];
};

// Of a rule that is described by Constants<Real>, the numbers that all elements share, each rounded
// to what is computed in.
template <template <class> class Constants>
struct Problem : Arrays {
  Constants<double> constants;
};

}  // namespace isobit::optimizers
