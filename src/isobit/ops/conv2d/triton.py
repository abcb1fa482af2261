# SPDX-License-Identifier: Apache-2.0
"""conv2d in Triton, forward and backward, with the bits of all other variants."""

from isobit.ops.convolution.triton_calls import variants

VARIANTS = variants(2)
