// SPDX-License-Identifier: Apache-2.0
// Parts of LayerNorm's rows in vectors, compiled once for each instruction set.
#include "isobit/norm_linear/cpu_parts.h"
#include "isobit/ops/layernorm/formula.h"

template struct isobit::norm_linear::ISOBIT_ISA::Parts<isobit::layernorm::Formula>;
