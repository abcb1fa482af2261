# SPDX-License-Identifier: Apache-2.0
"""What the tests of the operators' PyTorch versions draw, and how far results may be apart."""

import torch

REALS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
SHAPES = ((3, 1), (5, 64), (2, 4, 513), (33, 100))


def draw(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def same_bits(a, b):
    """NaN counts as equal: only the library has but one."""
    return a.dtype == b.dtype and torch.equal(*(t.nan_to_num(nan=12345.0) for t in (a, b)))


def worst_c(actual, truth, scale):
    """The largest C of docs/numerics.md, without what it says of subnormal and infinite numbers."""
    apart = torch.zeros_like(truth)
    if actual.itemsize == 2:
        digits = 11 if actual.dtype == torch.float16 else 8
        apart = torch.ldexp(torch.ones_like(truth), torch.frexp(truth).exponent - digits - 1)
    unit = 2.0**-53 if actual.dtype == torch.float64 else 2.0**-24
    return float(((actual.double() - truth).abs() - apart).clamp(min=0).div(unit * scale).max())
