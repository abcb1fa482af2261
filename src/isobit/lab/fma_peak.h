// SPDX-License-Identifier: Apache-2.0
// How fast one thread of this processor multiplies and adds, measured: the roof of what computes
// more than it moves.
#pragma once

#include "isobit/core/dtype.h"
#include "isobit/core/machine.h"

namespace isobit::lab {

// Operations a second, an fma counted as two, with vectors of that instruction set; in f64 for f64,
// in f32 for all others. Measured at the first call.
double fma_peak(Isa isa, DType dtype);

}  // namespace isobit::lab
