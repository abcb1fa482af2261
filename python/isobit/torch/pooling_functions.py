# SPDX-License-Identifier: Apache-2.0
"""Pooling of one and two dimensions: torch.nn.functional's, with the same bits wherever it is
computed."""

import torch

from isobit.torch.convolutions import numbers
from isobit.torch.derived import short, transforms_active
from isobit.torch.fast import TENSORS
from isobit.torch.functional import overridable, run_as
from isobit.torch.pooling import AVERAGE_POOL, MAX_POOL


def _images(op, dims, input):
    """A batch of images: signals have a height of 1. Nothing is copied."""
    if not isinstance(input, torch.Tensor):
        raise TypeError(f"{op}: input must be a Tensor; it is {type(input).__name__}")
    if input.is_nested:
        raise NotImplementedError(f"{op}: input is nested; must be strided")
    if input.ndim not in (dims + 1, dims + 2):
        raise ValueError(
            f"{op}: input has {input.ndim} dimensions; must have {dims + 2}, or {dims + 1} without "
            "a batch"
        )
    if input.ndim == dims + 1:
        input = input.unsqueeze(0)
    return input.unsqueeze(2) if dims == 1 else input


def _back(result, dims, like):
    if dims == 1:
        result = result.squeeze(2)
    return result.squeeze(0) if like.ndim == dims + 1 else result


def _pair(values, of_height):
    """Numbers of one dimension are those of the width."""
    return values if len(values) == 2 else (of_height, *values)


def _windows(op, dims, kernel_size, stride, padding, dilation=1):
    kernel = numbers(op, "kernel_size", kernel_size, dims)
    if min(kernel) < 1:
        raise ValueError(f"{op}: kernel_size is {min(kernel)}; must be at least 1")
    none = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    stride = kernel if none else numbers(op, "stride", stride, dims)
    return {
        "kernel": _pair(kernel, 1),
        "bins": (1, 1),
        "stride": _pair(stride, 1),
        "padding": _pair(numbers(op, "padding", padding, dims), 0),
        "dilation": _pair(numbers(op, "dilation", dilation, dims), 1),
    }


def _squares(input, kernel_size, stride, padding, dilation=1):
    """_windows of images, in order, where every argument is one number in its range; else None."""
    if type(input) not in TENSORS or input.ndim != 4:
        return None
    stride = kernel_size if stride is None else stride
    for number, least in ((kernel_size, 1), (stride, 1), (padding, 0), (dilation, 1)):
        if type(number) is not int or number < least:
            return None
    return ((kernel_size,) * 2, (1, 1), (stride,) * 2, (padding,) * 2, (dilation,) * 2)


def _finds_index(input):
    """Where derivatives may be asked for, they need it."""
    return (
        torch.is_grad_enabled()
        or type(input) is not torch.Tensor
        or torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or transforms_active()
    )


def _max_pool(op, dims, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices):
    with_index = bool(return_indices) or _finds_index(input)
    squares = dims == 2 and _squares(input, kernel_size, stride, padding, dilation)
    if squares and (found := short(MAX_POOL, input, *squares, ceil_mode, with_index)) is not None:
        return found if return_indices else found[0]
    x = _images(op, dims, input)
    windows = _windows(op, dims, kernel_size, stride, padding, dilation)
    more = {"ceil_mode": ceil_mode, "with_index": with_index}
    y, index = run_as(op, MAX_POOL, {"x": x}, **windows, **more)
    y = _back(y, dims, input)
    return (y, _back(index, dims, input)) if return_indices else y


def _average_pool(op, dims, input, windows, ceil_mode=False, counts_padding=False, divisor=0):
    more = {"ceil_mode": ceil_mode, "count_include_pad": counts_padding, "divisor": divisor}
    y = run_as(op, AVERAGE_POOL, {"x": _images(op, dims, input)}, **windows, **more)
    return _back(y, dims, input)


def _adaptive(op, dims, input, output_size):
    sides = _images(op, dims, input).shape[2:]
    asked = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * dims
    if len(asked) != dims:
        raise ValueError(f"{op}: output_size has {len(asked)} numbers; must have 1 or {dims}")
    asked = [side if n is None else n for n, side in zip(asked, sides[-dims:], strict=True)]
    bins = numbers(op, "output_size", asked, dims)
    if min(bins) < 1:
        raise ValueError(f"{op}: output_size is {min(bins)}; must be at least 1")
    none = (0, 0)
    windows = {"kernel": none, "bins": _pair(bins, 1), "stride": none, "padding": none}
    return _average_pool(op, dims, input, {**windows, "dilation": (1, 1)})


@overridable
def max_pool1d(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
):
    """torch.nn.functional.max_pool1d."""
    more = (kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return _max_pool("max_pool1d", 1, input, *more)


@overridable
def max_pool2d(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
):
    """torch.nn.functional.max_pool2d. Where input has its channels last in memory, so has the
    result. Of equal elements the first is the largest, also of +0 and -0."""
    more = (kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return _max_pool("max_pool2d", 2, input, *more)


@overridable
def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    """torch.nn.functional.avg_pool1d."""
    windows = _windows("avg_pool1d", 1, kernel_size, stride, padding)
    return _average_pool("avg_pool1d", 1, input, windows, ceil_mode, count_include_pad)


@overridable
def avg_pool2d(
    input,
    kernel_size,
    stride=None,
    padding=0,
    ceil_mode=False,
    count_include_pad=True,
    divisor_override=None,
):
    """torch.nn.functional.avg_pool2d. Where input has its channels last in memory, so has the
    result."""
    if divisor_override == 0:
        raise ValueError("avg_pool2d: divisor_override is 0; must be another number")
    if divisor_override is not None:  # and nothing is counted
        count_include_pad = False
    more = (ceil_mode, count_include_pad, divisor_override or 0)
    squares = _squares(input, kernel_size, stride, padding)
    if squares and (y := short(AVERAGE_POOL, input, *squares, *more)) is not None:
        return y
    windows = _windows("avg_pool2d", 2, kernel_size, stride, padding)
    return _average_pool("avg_pool2d", 2, input, windows, *more)


@overridable
def adaptive_avg_pool1d(input, output_size):
    """torch.nn.functional.adaptive_avg_pool1d."""
    return _adaptive("adaptive_avg_pool1d", 1, input, output_size)


@overridable
def adaptive_avg_pool2d(input, output_size):
    """torch.nn.functional.adaptive_avg_pool2d."""
    return _adaptive("adaptive_avg_pool2d", 2, input, output_size)
