# SPDX-License-Identifier: Apache-2.0
"""Pooling of images in PyTorch: what it means, PyTorch's own, windows as views, and as a function
with a backward of its own.

All take x, (batch, channels, height, width), and a kernel, a stride and a padding of two numbers
each. Padding is no element of a window: of a mean, it is not counted.
"""

import math

import torch
from torch.nn import functional


def _windows(x, kernel, stride, padding, filler):
    """A view of x with its padding: (batch, channels, rows, columns, *kernel)."""
    (down, across) = padding
    x = functional.pad(x, (across, across, down, down), value=filler)
    return x.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])


def _counts(x, kernel, stride, padding):
    """How many elements each window has."""
    ones = torch.ones_like(x[:1, :1])
    return _windows(ones, kernel, stride, padding, 0).sum((-2, -1))


def reference(x, kernel, stride, padding, reduction):
    """y in double, by README.md's formulas."""
    x = x.double()
    if reduction == "max":
        return _windows(x, kernel, stride, padding, -math.inf).amax((-2, -1))
    sums = _windows(x, kernel, stride, padding, 0).sum((-2, -1))
    return sums / _counts(x, kernel, stride, padding)


def reference_backward(grad_y, x, kernel, stride, padding, reduction):
    """grad_x in double: each window gives to its elements, one tap after the other."""
    terms = grad_y.double()
    if reduction == "max":
        index = standard(x, kernel, stride, padding, "max", True)[1].flatten(2)
        flat = torch.zeros(*x.shape[:2], x[0, 0].numel(), dtype=torch.float64, device=x.device)
        return flat.scatter_add_(2, index, terms.flatten(2)).view(x.shape)
    terms = terms / _counts(x.double(), kernel, stride, padding)
    sides = zip(x.shape[2:], padding, strict=True)
    whole = terms.new_zeros(*x.shape[:2], *(extent + 2 * width for extent, width in sides))
    rows, cols = grad_y.shape[2:]
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            down = slice(i, i + stride[0] * (rows - 1) + 1, stride[0])
            across = slice(j, j + stride[1] * (cols - 1) + 1, stride[1])
            whole[:, :, down, across] += terms
    (before, left), (height, width) = padding, x.shape[2:]
    return whole[:, :, before : before + height, left : left + width]


def standard(x, kernel, stride, padding, reduction, return_indices=False):
    """PyTorch's own."""
    if reduction == "max":
        more = {"return_indices": return_indices}
        return functional.max_pool2d(x, kernel, stride, padding, **more)
    return functional.avg_pool2d(x, kernel, stride, padding, count_include_pad=False)


def tap_by_tap(x, kernel, stride, padding, reduction):
    """In the order of the library: the elements of all windows at one place of theirs at a time. In
    float beside 16 bits."""
    real = x.to(torch.promote_types(x.dtype, torch.float32))
    largest = reduction == "max"
    views = _windows(real, kernel, stride, padding, -math.inf if largest else 0)
    total = torch.full_like(views[..., 0, 0], -math.inf if largest else 0)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            value = views[..., i, j]
            if largest:
                total = torch.where((value > total) | value.isnan(), value, total)
            else:
                total = total + value
    return (total if largest else total / _counts(real, kernel, stride, padding)).to(x.dtype)


class Pool2d(torch.autograd.Function):
    """What backward needs of x is its shape, and where the largest elements stand."""

    @staticmethod
    def forward(ctx, x, kernel, stride, padding, reduction):
        ctx.of_call, ctx.x = (kernel, stride, padding), x.new_empty(()).expand(x.shape)
        if reduction == "max":
            y, index = standard(x, kernel, stride, padding, "max", True)
            ctx.save_for_backward(index)
            return y
        return tap_by_tap(x, kernel, stride, padding, reduction)

    @staticmethod
    def backward(ctx, grad_y):
        if ctx.saved_tensors:
            (index,) = ctx.saved_tensors
            shape = ctx.x.shape
            flat = grad_y.new_zeros(*shape[:2], shape[2] * shape[3])
            flat.scatter_add_(2, index.flatten(2), grad_y.flatten(2))
            return flat.view(shape), None, None, None, None
        found = reference_backward(grad_y, ctx.x, *ctx.of_call, "average")
        return found.to(grad_y.dtype), None, None, None, None


def custom(x, kernel, stride, padding, reduction):
    """With a derivative of its own."""
    return Pool2d.apply(x, kernel, stride, padding, reduction)
