# SPDX-License-Identifier: Apache-2.0
"""LayerNorm's variants in Triton, with the bits of all other variants on every input.

    VARIANTS["row_per_program"].run(x=x, weight=weight, bias=bias, y=y, mean=mean, rstd=rstd)
    VARIANTS["one_pass"].run(x=x, grad_y=grad_y, weight=weight, grad_x=grad_x, grad_bias=grad_bias)

What arrays may be: isobit.ops.triton_norms.
"""

from isobit.ops.layernorm.triton_statistics import statistics_of
from isobit.ops.triton_norms import Norm, variants

VARIANTS = variants(Norm("layernorm", statistics_of, centred=True))
