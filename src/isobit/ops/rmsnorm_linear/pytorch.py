# SPDX-License-Identifier: Apache-2.0
"""RMSNorm and the linear layer that it feeds in PyTorch: what they mean, how one writes them."""

from torch.nn import functional

from isobit.ops.matmul.pytorch import ACTIVATIONS


def reference(x, norm_weight, weight, bias=None, eps=1e-5, *, activation="none"):
    """In double, rounded once to the type of the weight."""
    wide = x.double()
    y = wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt() * norm_weight.double()
    z = y @ weight.double().T
    z = z if bias is None else z + bias.double()
    return ACTIVATIONS[activation](z).to(weight.dtype)


def standard(x, norm_weight, weight, bias=None, eps=1e-5, *, activation="none"):
    """Two operations, between which the normalised rows are an array that autograd keeps."""
    y = functional.rms_norm(x, x.shape[-1:], norm_weight, eps)
    return ACTIVATIONS[activation](functional.linear(y, weight, bias))
