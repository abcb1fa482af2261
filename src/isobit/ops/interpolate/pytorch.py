# SPDX-License-Identifier: Apache-2.0
"""Interpolation of images in PyTorch: what it means, PyTorch's own, as two products, and by
gathered elements. Their gradients are autograd's.

All take x, (batch, channels, height, width), a size of two numbers, a mode of the library's
("nearest", "nearest_exact", "linear", "cubic"), and whether corners are aligned.
"""

import torch
from torch.nn import functional

_THEIRS = {
    "nearest": "nearest",
    "nearest_exact": "nearest-exact",
    "linear": "bilinear",
    "cubic": "bicubic",
}


def taps(sources, results, mode, aligned=False):
    """The elements of each result and their weights in double, (results, taps); elements beyond an
    edge are the one at the edge."""
    result = torch.arange(results)
    if mode == "nearest":
        parts, whole = result * sources, results
    elif aligned:
        parts, whole = result * (sources - 1), max(results - 1, 1)
    else:
        shift = 0 if mode == "nearest_exact" else results
        parts, whole = (2 * result + 1) * sources - shift, 2 * results
    index, rest = parts.div(whole, rounding_mode="floor"), parts.remainder(whole)
    t, u = rest.double() / whole, (whole - rest).double() / whole
    if mode.startswith("nearest"):
        weights, first = [torch.ones_like(t)], 0
    elif mode == "linear":
        weights, first = [u, t], 0
    else:
        weights = [-0.75 * t * u * u, u * (1 + t * (1 - 1.25 * t)), t * (1 + u * (1 - 1.25 * u))]
        weights, first = [*weights, -0.75 * t * t * u], -1
    places = index[:, None] + first + torch.arange(len(weights))
    return places.clamp(0, sources - 1), torch.stack(weights, -1)


def matrix(sources, results, mode, aligned=False):
    """The weights of all elements in all results, (results, sources)."""
    places, weights = taps(sources, results, mode, aligned)
    return torch.zeros(results, sources, dtype=torch.float64).scatter_add_(1, places, weights)


def reference(x, size, mode, aligned=False):
    """y in double, by README.md's formula."""
    down, across = (matrix(*each, mode, aligned) for each in zip(x.shape[2:], size, strict=True))
    return down @ x.double() @ across.t()


def standard(x, size, mode, aligned=False):
    """PyTorch's own, which finds places in float32."""
    more = {} if mode.startswith("nearest") else {"align_corners": aligned}
    return functional.interpolate(x, size, mode=_THEIRS[mode], **more)


def as_products(x, size, mode, aligned=False):
    """Two products with matrices that are almost all zeros: what tensor cores would be given. Every
    element has a part in every result, if only 0 times it."""
    real = torch.promote_types(x.dtype, torch.float32)
    down, across = (
        matrix(*each, mode, aligned).to(real) for each in zip(x.shape[2:], size, strict=True)
    )
    return (down @ x.to(real) @ across.t()).to(x.dtype)


def by_elements(x, size, mode, aligned=False):
    """Of each side one tap of all results at a time, columns first."""
    real = x.to(torch.promote_types(x.dtype, torch.float32))
    for side in (3, 2):
        places, weights = taps(real.shape[side], size[side - 2], mode, aligned)
        shape = [-1 if each == side else 1 for each in range(4)]
        real = sum(
            real.index_select(side, place) * weight.to(real.dtype).view(shape)
            for place, weight in zip(places.t(), weights.t(), strict=True)
        )
    return real.to(x.dtype)
