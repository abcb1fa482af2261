# SPDX-License-Identifier: Apache-2.0
"""matmul in PyTorch: what it means, how one writes it, and into memory that is there."""

import torch
from torch.nn import functional

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}


def reference(a, b, bias=None, *, c=None, residual=None, alpha=1, beta=0, activation="none"):
    """In double, rounded once to the type of a."""
    wide = alpha * (a.double() @ b.double())
    if beta != 0:
        wide = wide + beta * c.double()
    if bias is not None:
        wide = wide + bias.double()
    wide = ACTIVATIONS[activation](wide)
    if residual is not None:
        wide = wide + residual.double()
    return wide.to(a.dtype)


def standard(a, b, bias=None, *, activation="none"):
    y = torch.matmul(a, b)
    return ACTIVATIONS[activation](y if bias is None else y + bias)


def fused(a, b, bias, *, out):
    """The bias with the product, into memory that the caller has."""
    return torch.addmm(bias, a, b, out=out)
