// SPDX-License-Identifier: Apache-2.0
// RMSNorm by its reference, and the product that it feeds.
#include "isobit/norm_linear/reference_rows.h"
#include "isobit/ops/rmsnorm_linear/fused.h"

template struct isobit::norm_linear::Reference<isobit::rmsnorm_linear::Fused>;
