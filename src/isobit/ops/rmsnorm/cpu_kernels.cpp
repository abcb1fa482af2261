// SPDX-License-Identifier: Apache-2.0
// RMSNorm's rows in vectors, compiled once for each instruction set.
#include "isobit/norms/cpu_backward_rows.h"
#include "isobit/norms/cpu_forward_rows.h"
#include "isobit/ops/rmsnorm/formula.h"

template struct isobit::norms::ISOBIT_ISA::Kernels<isobit::rmsnorm::Formula>;
