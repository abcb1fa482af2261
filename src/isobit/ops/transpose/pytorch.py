# SPDX-License-Identifier: Apache-2.0
"""transpose in PyTorch: what it means, how one writes it, and into memory that is there."""

import torch


def reference(x, dtype=None):
    """The last two dimensions exchanged, in new memory; another dtype is rounded to once.

    PyTorch takes a double to 16 bits by way of float, and so may round it twice. Made odd where it
    lost something, the float is never mistaken for a tie.
    """
    if x.dtype == torch.float64 and dtype in (torch.float16, torch.bfloat16):
        x = _rounded_to_odd(x)
    return x.to(x.dtype if dtype is None else dtype).mT.contiguous()


def standard(x, dtype=None):
    return x.mT.to(dtype or x.dtype).contiguous()


def fused(x, *, out):
    """One sweep, which casts on its way, into memory that the caller has."""
    return out.copy_(x.mT)


def _rounded_to_odd(x):
    nearest = x.float()
    bits = nearest.view(torch.int32)
    lost = x != nearest.double()
    outwards = torch.where(nearest.double().abs() < x.abs(), 1, -1).int()
    odd = torch.where(lost & ~x.isnan() & (bits & 1 == 0), bits + outwards, bits)
    return odd.view(torch.float32)
