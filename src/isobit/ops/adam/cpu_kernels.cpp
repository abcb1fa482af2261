// SPDX-License-Identifier: Apache-2.0
// A step of adam in vectors, compiled once for each instruction set.
#include "isobit/ops/adam/formula.h"
#include "isobit/optimizers/cpu_loops.h"

template struct isobit::optimizers::ISOBIT_ISA::Kernels<isobit::adam::Rule>;
