# SPDX-License-Identifier: Apache-2.0
"""Convolutions of any number of dimensions in PyTorch: what they mean, how one writes them, as a
module, and as a function with a backward of its own."""

import itertools
import math

import torch
from torch import nn
from torch.nn import functional

from isobit import _arguments
from isobit.ops.matmul.pytorch import ACTIVATIONS

STANDARD = {1: functional.conv1d, 2: functional.conv2d}
MODES = ("zeros", "reflect", "replicate", "circular")


def _each(number, dims):
    """A number for each dimension."""
    return (number,) * dims if isinstance(number, int) else tuple(number)


def padded(x, sides, mode):
    """x with what windows see beyond its edges."""
    if mode not in MODES:
        raise ValueError(f"convolution: padding_mode is {mode!r}; allowed: {', '.join(MODES)}")
    widths = [width for side in reversed(sides) for width in side]
    if not any(widths):
        return x
    return functional.pad(x, widths, mode="constant" if mode == "zeros" else mode)


def _windows(x, kernel, stride, dilation, groups):
    """A view of x: (batch, groups, channels of a group, *places, *taps)."""
    for dim, (taps, step, apart) in enumerate(zip(kernel, stride, dilation, strict=True), 2):
        x = x.unfold(dim, apart * (taps - 1) + 1, step)[..., ::apart]
    return x.unflatten(1, (groups, x.shape[1] // groups))


def _matrices(x, weight, stride, dilation, groups):
    """For each group a matrix of filters, (filters, k), and for each image one of windows, (k,
    places); and the extents of the places."""
    dims = weight.dim() - 2
    view = _windows(x, weight.shape[2:], stride, dilation, groups)
    places = view.shape[3 : 3 + dims]
    taps_first = (0, 1, 2, *range(3 + dims, 3 + 2 * dims), *range(3, 3 + dims))
    rows = math.prod(weight.shape[1:])
    columns = view.permute(taps_first).reshape(*view.shape[:2], rows, math.prod(places))
    return weight.reshape(groups, weight.shape[0] // groups, rows), columns, places


def _product(x, weight, bias, stride, dilation, groups):
    """Of an x that is padded."""
    filters, columns, places = _matrices(x, weight, stride, dilation, groups)
    y = (filters @ columns).reshape(x.shape[0], weight.shape[0], *places)
    return y if bias is None else y + bias.reshape(-1, *(1 for _ in places))


def _options(weight, stride, padding, dilation):
    dims = weight.dim() - 2
    stride, dilation = _each(stride, dims), _each(dilation, dims)
    if isinstance(padding, str):
        taps = weight.shape[2:]
        sides = _arguments.sides("convolution", padding, taps, stride, dilation, causal=True)
    else:
        sides = [(each, each) for each in _each(padding, dims)]
    return stride, sides, dilation


def _finished(y, activation, residual):
    y = ACTIVATIONS[activation](y)
    return y if residual is None else y + residual


def reference(
    x,
    weight,
    bias=None,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    *,
    padding_mode="zeros",
    activation="none",
    residual=None,
):
    """Filters times unfolded windows, in double, rounded once to the type of x. padding: numbers,
    "same", "valid", or "causal", all of it before the first element."""
    stride, sides, dilation = _options(weight, stride, padding, dilation)
    wide = padded(x.double(), sides, padding_mode)
    bias = None if bias is None else bias.double()
    y = _product(wide, weight.double(), bias, stride, dilation, groups)
    residual = None if residual is None else residual.double()
    return _finished(y, activation, residual).to(x.dtype)


def standard(
    x,
    weight,
    bias=None,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    *,
    padding_mode="zeros",
    activation="none",
    residual=None,
):
    """PyTorch's own, which pads with as many zeros on both sides by itself; else pads first."""
    stride, sides, dilation = _options(weight, stride, padding, dilation)
    alone = padding_mode == "zeros" and all(before == behind for before, behind in sides)
    number = tuple(before for before, _ in sides) if alone else 0
    x = x if alone else padded(x, sides, padding_mode)
    convolve = STANDARD[weight.dim() - 2]
    y = convolve(x, weight, bias, stride, number, dilation, groups)
    return _finished(y, activation, residual)


class Function(torch.autograd.Function):
    """Of an x that is padded. Keeps x, and makes the matrices of windows again in backward.

    A column of the gradient of such a matrix goes back to the elements that its window saw: tap by
    tap, since windows overlap but the elements of one tap do not.
    """

    @staticmethod
    def forward(ctx, x, weight, bias, stride, dilation, groups):
        ctx.save_for_backward(x, weight)
        ctx.windows = stride, dilation, groups
        return _product(x, weight, bias, stride, dilation, groups)

    @staticmethod
    def backward(ctx, grad_y):
        x, weight = ctx.saved_tensors
        stride, dilation, groups = ctx.windows
        filters, columns, places = _matrices(x, weight, stride, dilation, groups)
        rows = grad_y.reshape(*columns.shape[:2], filters.shape[1], columns.shape[3])
        grad_weight = (rows @ columns.mT).sum(0).reshape(weight.shape)
        grad_columns = (filters.mT @ rows).unflatten(-1, places).unflatten(2, weight.shape[1:])
        grad_x = torch.zeros_like(x)
        seen = _windows(grad_x, weight.shape[2:], stride, dilation, groups)
        for tap in itertools.product(*map(range, weight.shape[2:])):
            seen[(..., *tap)].add_(grad_columns[(slice(None),) * 3 + tap])
        grad_bias = None
        if ctx.needs_input_grad[2]:
            grad_bias = grad_y.sum((0, *range(2, grad_y.dim())))
        return grad_x, grad_weight, grad_bias, None, None, None


def custom(
    x,
    weight,
    bias=None,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    *,
    padding_mode="zeros",
    activation="none",
    residual=None,
):
    """As a textbook makes it a product, with gradients by formula."""
    stride, sides, dilation = _options(weight, stride, padding, dilation)
    x = padded(x, sides, padding_mode)
    y = Function.apply(x, weight, bias, stride, dilation, groups)
    return _finished(y, activation, residual)


class Module(nn.Module):
    """Has the parameters of torch.nn's, and its arguments with "causal" among the paddings."""

    dims: int

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        *,
        activation="none",
    ):
        super().__init__()
        shape = out_channels, in_channels // groups, *_each(kernel_size, self.dims)
        self.weight = nn.Parameter(torch.empty(shape))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_channels)) if bias else None)
        self.numbers = stride, padding, dilation, groups
        self.choices = {"padding_mode": padding_mode, "activation": activation}
        bound = 1 / math.sqrt(math.prod(shape[1:]))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x):
        return standard(x, self.weight, self.bias, *self.numbers, **self.choices)
