# SPDX-License-Identifier: Apache-2.0
"""The variants of batch_norm in Triton."""

from isobit.ops.channel_norm.triton_calls import variants

VARIANTS = variants("batch_norm")
