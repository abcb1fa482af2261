// SPDX-License-Identifier: Apache-2.0
// A step of lion in vectors, compiled once for each instruction set.
#include "isobit/ops/lion/formula.h"
#include "isobit/optimizers/cpu_loops.h"

template struct isobit::optimizers::ISOBIT_ISA::Kernels<isobit::lion::Rule>;
