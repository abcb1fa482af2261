# SPDX-License-Identifier: Apache-2.0
"""The convolutions of isobit.numpy."""

from collections.abc import Iterable
from numbers import Integral

from isobit import c_abi
from isobit._products import ACTIVATIONS

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")
_FLOATS = ("float32", "float16", "bfloat16", "float64")
_OF_Y = {
    "float32": ("float32", "float16", "bfloat16"),
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
    "float64": ("float64",),
}


def conv1d(
    input,
    weight,
    bias=None,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    *,
    padding_mode="zeros",
    activation=None,
    out_dtype=None,
):
    """activation(pre), rounded once: pre = sums of windows of input, (batch, channels, length),
    times weight, (filters, channels / groups, kernel), plus bias. padding: a number, "same",
    "valid", or "causal", all of it before the first element. Arrays of any strides."""
    more = (stride, padding, dilation, groups, padding_mode, activation, out_dtype)
    return _convolution("conv1d", 1, input, weight, bias, *more)


def conv2d(
    input,
    weight,
    bias=None,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    *,
    padding_mode="zeros",
    activation=None,
    out_dtype=None,
):
    """conv1d of images: input is (batch, channels, height, width), weight (filters, channels /
    groups, kernel_h, kernel_w). Numbers may be pairs, of rows and of columns."""
    more = (stride, padding, dilation, groups, padding_mode, activation, out_dtype)
    return _convolution("conv2d", 2, input, weight, bias, *more)


def _numbers(function, name, value, dims):
    values = tuple(value) if isinstance(value, Iterable) else (value,) * dims
    values = values * dims if len(values) == 1 else values
    if isinstance(value, str) or not all(isinstance(each, Integral) for each in values):
        raise TypeError(f"{function}: {name} must be integers; it is {value!r}")
    if len(values) != dims:
        raise ValueError(f"{function}: {name} has {len(values)} numbers; must have 1 or {dims}")
    return [int(each) for each in values]


def _padding(function, padding, dims, weight, stride, dilation):
    """Before the first element, and so much more behind the last."""
    if not isinstance(padding, str):
        return _numbers(function, "padding", padding, dims), [0] * dims
    total = [d * (taps - 1) for d, taps in zip(dilation, weight.shape[2:], strict=True)]
    if padding == "valid":
        return [0] * dims, [0] * dims
    if padding == "causal" and dims == 1:
        return total, [-each for each in total]
    if padding == "same":
        if any(each != 1 for each in stride):
            raise ValueError(f"{function}: padding is 'same', which needs a stride of 1")
        return [each // 2 for each in total], [each % 2 for each in total]
    causal = ", 'causal'" if dims == 1 else ""
    raise ValueError(
        f"{function}: padding is {padding!r}; allowed: numbers, 'same', 'valid'{causal}"
    )


def _one_of(function, name, value, allowed):
    if value not in allowed:
        words = ", ".join(map(repr, allowed))
        raise ValueError(f"{function}: {name} is {value!r}; allowed: {words}")


def _convolution(
    function,
    dims,
    input,
    weight,
    bias,
    stride,
    padding,
    dilation,
    groups,
    padding_mode,
    activation,
    out_dtype,
):
    from isobit import numpy

    _one_of(function, "activation", activation, (None, *ACTIVATIONS[1:]))
    _one_of(function, "padding_mode", padding_mode, PADDING_MODES)
    call = numpy._Call(function, "input", input, _FLOATS)
    x, weight = call.x, numpy._array(function, "weight", weight, (call.dtype,), call.like)
    for name, array in (("input", x), ("weight", weight)):
        if array.ndim != dims + 2:
            raise ValueError(
                f"{function}: {name} has {array.ndim} dimensions; must have {dims + 2}"
            )
    stride = _numbers(function, "stride", stride, dims)
    dilation = _numbers(function, "dilation", dilation, dims)
    (groups,) = _numbers(function, "groups", groups, 1)
    for name, values in (("stride", stride), ("dilation", dilation), ("groups", [groups])):
        if min(values) < 1:
            raise ValueError(f"{function}: {name} is {min(values)}; must be at least 1")
    before, extra = _padding(function, padding, dims, weight, stride, dilation)
    tensors = {"x": numpy._strided(x), "weight": numpy._strided(weight)}
    if bias is not None:
        of_bias = tuple(dict.fromkeys((call.dtype, "float32")))
        of_bias = ("float64",) if call.dtype == "float64" else of_bias
        tensors["bias"] = numpy._strided(numpy._array(function, "bias", bias, of_bias, call.like))
    dtype = (
        call.dtype if out_dtype is None else call.named("out_dtype", out_dtype, _OF_Y[call.dtype])
    )
    sides = zip(x.shape[2:], weight.shape[2:], stride, before, extra, dilation, strict=True)
    extents = [(n + 2 * p + e - d * (taps - 1) - 1) // s + 1 for n, taps, s, p, e, d in sides]
    # What leaves nothing, the library tells.
    y = call.empty((x.shape[0], weight.shape[0], *(max(0, each) for each in extents)), dtype)
    tensors["y"] = numpy._strided(y)
    options = {
        "groups": groups,
        "padding_mode": padding_mode,
        "activation": "none" if activation is None else activation,
    }
    sides = ("",) if dims == 1 else ("_h", "_w")
    for name, values in (
        ("stride", stride),
        ("dilation", dilation),
        ("padding", before),
        ("extra_padding", extra),
    ):
        options |= {name + side: value for side, value in zip(sides, values, strict=True)}
    c_abi.call(function, "fwd", numpy._context, **tensors, **options)
    return call.result(y)
