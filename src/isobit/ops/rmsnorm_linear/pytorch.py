# SPDX-License-Identifier: Apache-2.0
"""RMSNorm and the linear layer that it feeds in PyTorch: what they mean, how one writes them."""

from torch.nn import functional

from isobit.ops.matmul.pytorch import ACTIVATIONS
from isobit.ops.rmsnorm import pytorch as norm


def reference(x, norm_weight, weight, bias=None, eps=1e-5, *, activation="none"):
    """In double, rounded once to the type of the weight."""
    y, _ = norm.reference(x, norm_weight, eps)
    z = y @ weight.double().T
    z = z if bias is None else z + bias.double()
    return ACTIVATIONS[activation](z).to(weight.dtype)


def standard(x, norm_weight, weight, bias=None, eps=1e-5, *, activation="none"):
    """Two operations, between which the normalised rows are an array that autograd keeps."""
    y = norm.standard(x, norm_weight, eps)
    return ACTIVATIONS[activation](functional.linear(y, weight, bias))
