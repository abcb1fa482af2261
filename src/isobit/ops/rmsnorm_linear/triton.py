# SPDX-License-Identifier: Apache-2.0
"""RMSNorm and the linear layer that it feeds in Triton, one after the other."""

from isobit.ops.rmsnorm import triton as norm
from isobit.ops.triton_norm_linear import variants

VARIANTS = variants(norm.VARIANTS)
