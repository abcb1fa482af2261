# SPDX-License-Identifier: Apache-2.0
"""add and increment in PyTorch: what they mean, how one writes them, and without a new array."""

import torch


def reference(x, residual=None):
    """The sum of x and residual, or of x and 1, rounded once to nearest even; integers wrap around.

    Twice the digits of a type and two more hold its sums so well that rounding them first does not
    show, so double serves all types but itself, where the sum is IEEE's.
    """
    wide = torch.float64 if x.is_floating_point() else torch.int64
    return (x.to(wide) + (1 if residual is None else residual.to(wide))).to(x.dtype)


def standard(x, residual=None):
    return x + (1 if residual is None else residual)


def fused(x, residual=None, *, out):
    """One sweep into memory that the caller has: `out` may be x or residual itself."""
    return torch.add(x, 1 if residual is None else residual, out=out)
