# SPDX-License-Identifier: Apache-2.0
"""The activations in PyTorch: what they mean, how one writes them, and with a gate."""

import torch
import torch.nn.functional as F

FUNCTIONS = {
    "exp": torch.exp,
    "log": torch.log,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


def reference(x, gate=None, *, function):
    """In double, rounded once. Twice the digits serve all types but double itself."""
    wide = x.double() if gate is None else gate.double()
    y = FUNCTIONS[function](wide)
    return (y if gate is None else x.double() * y).to(x.dtype)


def standard(x, gate=None, *, function):
    if gate is None:
        return FUNCTIONS[function](x)
    return x * FUNCTIONS[function](gate)


def fused(x, gate=None, *, function, out):
    """Into memory that the caller has."""
    if gate is None:
        return out.copy_(FUNCTIONS[function](x))
    return torch.mul(x, FUNCTIONS[function](gate), out=out)
