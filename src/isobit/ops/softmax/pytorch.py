# SPDX-License-Identifier: Apache-2.0
"""softmax and its logarithm of rows in PyTorch: what they mean, PyTorch's own, as a textbook writes
them, and in pieces with a running largest element, as attention takes rows that it never has whole.

All take x, a mask, which expands to x, a scale and log. Where the mask is False there is no
element: y is 0, its logarithm -inf.
"""

import math

import torch

PIECE = 128  # elements


def _exponents(x, mask, scale):
    """-inf where there is no element, whatever x holds there."""
    exponents = x * scale
    return exponents if mask is None else exponents.masked_fill(~mask, -math.inf)


def _without_elements(y, mask, log):
    """A row that a mask leaves nothing of is 0, or -inf, and has a gradient of 0."""
    if mask is None:
        return y
    return y.masked_fill(~mask.any(-1, keepdim=True), -math.inf if log else 0)


def reference(x, mask=None, *, scale=1.0, log=False):
    """y in double, by README.md's formulas."""
    exponents = _exponents(x.double(), mask, scale)
    y = exponents - exponents.logsumexp(-1, keepdim=True)
    return _without_elements(y if log else y.exp(), mask, log)


def _gradient(grad_y, y, mask, scale, log):
    """From y alone: x is not needed."""
    if mask is not None:
        grad_y = grad_y.masked_fill(~mask, 0)
    if log:
        grad_x = scale * (grad_y - y.exp() * grad_y.sum(-1, keepdim=True))
    else:
        grad_x = scale * (y * (grad_y - (grad_y * y).sum(-1, keepdim=True)))
    return grad_x if mask is None else grad_x.masked_fill(~mask, 0)


def reference_backward(grad_y, y, mask=None, *, scale=1.0, log=False):
    """grad_x in double, from y as forward gives it, by README.md's formulas."""
    return _gradient(grad_y.double(), y.double(), mask, scale, log)


def standard(x, mask=None, *, scale=1.0, log=False):
    """PyTorch's own, which makes NaN of a row that a mask leaves nothing of."""
    function = torch.log_softmax if log else torch.softmax
    return function(_exponents(x, mask, scale), -1)


def textbook(x, mask=None, *, scale=1.0, log=False):
    """In the type of x: less the largest, since e^x of a large x is beyond its type."""
    exponents = _exponents(x, mask, scale)
    exponents = exponents - exponents.detach().amax(-1, keepdim=True)
    weights = exponents.exp()
    total = weights.sum(-1, keepdim=True)
    return _without_elements(exponents - total.log() if log else weights / total, mask, log)


def online(x, mask=None, *, scale=1.0, log=False):
    """A row in pieces, each read once for the sum: where one has a larger element than all before,
    the sum so far is brought to it. In float beside 16 bits."""
    exponents = _exponents(x.to(torch.promote_types(x.dtype, torch.float32)), mask, scale)
    total = exponents.new_zeros((*x.shape[:-1], 1))
    most = torch.full_like(total, -math.inf)
    for piece in exponents.split(PIECE, -1) if x.shape[-1] else ():
        above = torch.maximum(most, piece.amax(-1, keepdim=True))
        base = above.masked_fill(above == -math.inf, 0)  # no element is there yet
        total = total * (most - base).exp() + (piece - base).exp().sum(-1, keepdim=True)
        most = above
    y = exponents - most
    y = y - total.log() if log else y.exp() / total
    return _without_elements(y, mask, log).to(x.dtype)


class Softmax(torch.autograd.Function):
    """What backward needs is y, which the next layer keeps in any case."""

    @staticmethod
    def forward(ctx, x, mask, scale, log):
        y = online(x, mask, scale=scale, log=log)
        ctx.save_for_backward(y, mask)
        ctx.options = {"scale": scale, "log": log}
        return y

    @staticmethod
    def backward(ctx, grad_y):
        y, mask = ctx.saved_tensors
        real = torch.promote_types(y.dtype, torch.float32)
        grad_x = _gradient(grad_y.to(real), y.to(real), mask, **ctx.options)
        return grad_x.to(y.dtype), None, None, None


def custom(x, mask=None, *, scale=1.0, log=False):
    """With a derivative of its own."""
    return Softmax.apply(x, mask, scale, log)
