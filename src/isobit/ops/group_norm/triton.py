# SPDX-License-Identifier: Apache-2.0
"""The variants of group_norm in Triton."""

from isobit.ops.channel_norm.triton_calls import variants

VARIANTS = variants("group_norm")
