# SPDX-License-Identifier: Apache-2.0
"""conv2d in PyTorch: what it means, how one writes it, with a backward of its own, as a module."""

from isobit.ops.convolution import pytorch as convolution
from isobit.ops.convolution.pytorch import custom, reference, standard

__all__ = ["Module", "custom", "reference", "standard"]


class Module(convolution.Module):
    dims = 2
