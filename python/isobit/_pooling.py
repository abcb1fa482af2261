# SPDX-License-Identifier: Apache-2.0
"""Pooling of isobit.numpy."""

import numpy as np

from isobit import _arrays, c_abi
from isobit._calls import FLOATS, Call, context
from isobit._convolutions import numbers


def max_pool2d(
    x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
):
    """The largest element of each window of x, (batch, channels, height, width); with
    return_indices also where in its plane it stands, row * width + column. Of equal elements the
    first is the largest. Numbers may be pairs, of rows and of columns; arrays of any strides."""
    windows = _windows("max_pool2d", kernel_size, stride, padding, dilation)
    return _pooled("max_pool2d", x, windows, bool(return_indices), ceil_mode=bool(ceil_mode))


def avg_pool2d(
    x,
    kernel_size,
    stride=None,
    padding=0,
    ceil_mode=False,
    count_include_pad=True,
    divisor_override=None,
):
    """The mean of each window of x, (batch, channels, height, width). count_include_pad: the zeros
    of the padding are elements too. divisor_override: what sums are divided by instead of their
    number of elements."""
    options = {"ceil_mode": bool(ceil_mode), "count_include_pad": bool(count_include_pad)}
    if divisor_override is not None:
        (divisor,) = numbers("avg_pool2d", "divisor_override", divisor_override, 1)
        if divisor == 0:
            raise ValueError("avg_pool2d: divisor_override is 0; must be another number")
        options |= {"divisor": divisor, "count_include_pad": False}
    windows = _windows("avg_pool2d", kernel_size, stride, padding, 1)
    return _pooled("avg_pool2d", x, windows, reduction="average", **options)


def adaptive_avg_pool2d(x, output_size):
    """The means of as many windows as output_size says, which share height and width of x as evenly
    as they can. None: as many as there are elements."""
    function = "adaptive_avg_pool2d"
    asked = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * 2
    bins = [1 if n is None else n for n in asked]
    bins = numbers(function, "output_size", bins, 2)
    if min(bins) < 1:
        raise ValueError(f"{function}: output_size is {min(bins)}; must be at least 1")
    windows = {"window": [0, 0], "stride": [0, 0], "padding": [0, 0], "dilation": [1, 1]}
    windows["bins"] = [None if n is None else m for n, m in zip(asked, bins, strict=True)]
    return _pooled(function, x, windows, reduction="average")


def _windows(function, kernel_size, stride, padding, dilation):
    window = numbers(function, "kernel_size", kernel_size, 2)
    stride = window if stride is None else numbers(function, "stride", stride, 2)
    dilation = numbers(function, "dilation", dilation, 2)
    for name, values in (("kernel_size", window), ("stride", stride), ("dilation", dilation)):
        if min(values) < 1:
            raise ValueError(f"{function}: {name} is {min(values)}; must be at least 1")
    padding = numbers(function, "padding", padding, 2)
    windows = {"window": window, "stride": stride, "padding": padding, "dilation": dilation}
    return {**windows, "bins": [1, 1]}


def _results(extent, window, stride, padding, dilation, bins, ceil_mode):
    """At least 0: what leaves nothing, the library tells."""
    if window == 0:
        return bins
    room = extent + 2 * padding - dilation * (window - 1) - 1 + (stride - 1 if ceil_mode else 0)
    count = room // stride + 1
    late = ceil_mode and (count - 1) * stride >= extent + padding
    return max(0, count - 1 if late else count)


def _pooled(function, x, windows, with_index=False, ceil_mode=False, **options):
    call = Call(function, "x", x, FLOATS)
    if call.x.ndim != 4:
        raise ValueError(f"{function}: x has {call.x.ndim} dimensions; must have 4")
    sides = call.x.shape[2:]
    windows["bins"] = [
        side if n is None else n for n, side in zip(windows["bins"], sides, strict=True)
    ]
    extents = [_results(*each, ceil_mode) for each in zip(sides, *windows.values(), strict=True)]
    shape = (*call.x.shape[:2], *extents)
    y = call.empty(shape, call.dtype)
    tensors = {"x": _arrays.strided(call.x), "y": _arrays.strided(y)}
    index = np.empty(shape, np.int64) if with_index else None
    if with_index:
        tensors["index"] = _arrays.strided(index)
    for name, values in windows.items():
        options |= {name + side: value for side, value in zip(("_h", "_w"), values, strict=True)}
    c_abi.call("pool2d", "fwd", context(), **tensors, ceil_mode=ceil_mode, **options)
    return (call.result(y), call.result(index)) if with_index else call.result(y)
