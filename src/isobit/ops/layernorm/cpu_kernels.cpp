// SPDX-License-Identifier: Apache-2.0
// LayerNorm's rows in vectors, compiled once for each instruction set.
#include "isobit/norms/cpu_backward_rows.h"
#include "isobit/norms/cpu_forward_rows.h"
#include "isobit/ops/layernorm/formula.h"

template struct isobit::norms::ISOBIT_ISA::Kernels<isobit::layernorm::Formula>;
