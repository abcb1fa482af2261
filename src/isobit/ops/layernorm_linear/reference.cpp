// SPDX-License-Identifier: Apache-2.0
// LayerNorm by its reference, and the product that it feeds.
#include "isobit/norm_linear/reference_rows.h"
#include "isobit/ops/layernorm_linear/fused.h"

template struct isobit::norm_linear::Reference<isobit::layernorm_linear::Fused>;
