# SPDX-License-Identifier: Apache-2.0
"""The convolutions of isobit.numpy."""

from collections.abc import Iterable
from numbers import Integral

import numpy as np

from isobit import _arguments, _arrays, c_abi
from isobit._calls import FLOATS, Call, context
from isobit._products import ACTIVATIONS

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")
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


def numbers(function, name, value, dims):
    if getattr(value, "ndim", None) == 0:  # such an array is no sequence
        value = value.item()
    values = tuple(value) if isinstance(value, Iterable) else (value,) * dims
    values = values * dims if len(values) == 1 else values
    if isinstance(value, str) or not all(isinstance(each, Integral) for each in values):
        raise TypeError(f"{function}: {name} must be integers; it is {value!r}")
    if len(values) != dims:
        needed = "1" if dims == 1 else f"1 or {dims}"
        raise ValueError(f"{function}: {name} has {len(values)} numbers; must have {needed}")
    return [_arguments.whole(function, name, int(each)) for each in values]


def _padding(function, padding, dims, weight, stride, dilation):
    """Before the first element, and so much more behind the last."""
    if not isinstance(padding, str):
        return numbers(function, "padding", padding, dims), [0] * dims
    taps = weight.shape[2:]
    sides = _arguments.sides(function, padding, taps, stride, dilation, causal=dims == 1)
    return [before for before, _ in sides], [behind - before for before, behind in sides]


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
    _one_of(function, "activation", activation, (None, *ACTIVATIONS[1:]))
    _one_of(function, "padding_mode", padding_mode, PADDING_MODES)
    call = Call(function, "input", input, FLOATS)
    weight = _arrays.checked(function, "weight", weight, (call.dtype,), call.like)
    for name, array in (("input", call.x), ("weight", weight)):
        if array.ndim != dims + 2:
            raise ValueError(
                f"{function}: {name} has {array.ndim} dimensions; must have {dims + 2}"
            )
    more = (stride, padding, dilation, groups, padding_mode, activation, out_dtype)
    return call.result(_computed(call, dims, call.x, weight, bias, *more))


def _bias(call, given):
    dtypes = tuple(dict.fromkeys((call.dtype, "float32")))
    dtypes = ("float64",) if call.dtype == "float64" else dtypes
    return _arrays.checked(call.function, "bias", given, dtypes, call.like)


def _computed(
    call,
    dims,
    x,
    weight,
    bias,
    stride,
    padding,
    dilation,
    groups,
    padding_mode="zeros",
    activation=None,
    out_dtype=None,
):
    """The convolution of an ndarray, which may be another than the call's, as an ndarray."""
    function = call.function
    stride = numbers(function, "stride", stride, dims)
    dilation = numbers(function, "dilation", dilation, dims)
    (groups,) = numbers(function, "groups", groups, 1)
    for name, values in (("stride", stride), ("dilation", dilation), ("groups", [groups])):
        if min(values) < 1:
            raise ValueError(f"{function}: {name} is {min(values)}; must be at least 1")
    before, extra = _padding(function, padding, dims, weight, stride, dilation)
    tensors = {"x": _arrays.strided(x), "weight": _arrays.strided(weight)}
    if bias is not None:
        tensors["bias"] = _arrays.strided(_bias(call, bias))
    dtype = (
        call.dtype if out_dtype is None else call.named("out_dtype", out_dtype, _OF_Y[call.dtype])
    )
    sides = zip(x.shape[2:], weight.shape[2:], stride, before, extra, dilation, strict=True)
    extents = [(n + 2 * p + e - d * (taps - 1) - 1) // s + 1 for n, taps, s, p, e, d in sides]
    # What leaves nothing, the library tells.
    y = call.empty((x.shape[0], weight.shape[0], *(max(0, each) for each in extents)), dtype)
    tensors["y"] = _arrays.strided(y)
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
    c_abi.call(f"conv{dims}d", "fwd", context(), **tensors, **options)
    return y


def causal_conv1d(
    x, weight, bias=None, *, initial_state=None, return_final_state=False, activation=None
):
    """activation(y), y[t] being the sum of x[t - width + 1 + j] * weight[j] over j, and bias: of
    each channel of x, (batch, channels, length), with its row of weight, (channels, width).

    initial_state: the width - 1 elements before the first, (batch, channels, width - 1); without
    it, zeros. return_final_state: (y, those before what would come next). activation: None, or
    "silu", also called "swish", which is applied to the rounded sums.
    """
    causal = _Causal("causal_conv1d", x, weight, bias, (3,), activation)
    state = np.zeros((*causal.x.shape[:2], causal.reach), causal.x.dtype)
    if initial_state is not None:
        state = causal.state("initial_state", initial_state)
    y, joined = causal.following(state)
    if not return_final_state:
        return causal.call.result(y)
    final = joined[..., joined.shape[-1] - causal.reach :].copy()
    return causal.call.result(y), causal.call.result(final)


def causal_conv1d_update(x, conv_state, weight, bias=None, activation=None):
    """causal_conv1d of what comes next: x is one element of each signal, (batch, channels), or
    several, (batch, channels, length). conv_state, (batch, channels, state_len), holds those
    before, at least width - 1, of which the last are looked at; it is changed in place, and then
    ends with x."""
    causal = _Causal("causal_conv1d_update", x, weight, bias, (2, 3), activation)
    state = causal.state("conv_state", conv_state, "at least ")
    if not _arrays.written_through(conv_state, state):
        raise ValueError(
            f"{causal.call.function}: conv_state may not be written to where it lies; must be a "
            "writable array in this machine's byte order"
        )
    y, joined = causal.following(state)
    state[...] = joined[..., joined.shape[-1] - state.shape[-1] :]
    return causal.call.result(y if causal.call.x.ndim == 3 else y[..., 0])


class _Causal:
    """A call with a weight of (channels, width)."""

    def __init__(self, function, x, weight, bias, dims, activation):
        _one_of(function, "activation", activation, (None, "silu", "swish"))
        self.call, self.activation = Call(function, "x", x, FLOATS), activation
        self.x = self.call.x
        if self.x.ndim not in dims:
            needed = " or ".join(map(str, dims))
            raise ValueError(f"{function}: x has {self.x.ndim} dimensions; must have {needed}")
        if self.x.ndim == 2:
            self.x = self.x[..., np.newaxis]
        self.weight = _arrays.checked(
            function, "weight", weight, (self.call.dtype,), self.call.like
        )
        shape, channels = self.weight.shape, self.x.shape[1]
        if len(shape) != 2 or shape[0] != channels or shape[1] < 1:
            raise ValueError(
                f"{function}: weight has shape {shape}; must be ({channels}, width of at least 1), "
                f"since x has {channels} channels"
            )
        self.reach = shape[1] - 1
        self.bias = None if bias is None else _bias(self.call, bias)
        if bias is not None and self.bias.shape != (channels,):
            raise ValueError(f"{function}: bias has shape {self.bias.shape}; must be ({channels},)")

    def state(self, name, given, least=""):
        """least: what is said where it may be longer than it is looked at."""
        function, dtypes = self.call.function, (self.call.dtype,)
        state = _arrays.checked(function, name, given, dtypes, self.call.like)
        leading = self.x.shape[:2]
        length = state.shape[-1] if state.ndim == 3 else -1
        fits = length >= self.reach if least else length == self.reach
        if state.shape[:-1] != leading or not fits:
            batch, channels = leading
            raise ValueError(
                f"{function}: {name} has shape {state.shape}; must be ({batch}, {channels}, "
                f"{least}{self.reach})"
            )
        return state

    def following(self, state):
        """The results of x behind the state, and both together."""
        call, channels, length = self.call, *self.x.shape[1:]
        joined = np.concatenate((state, self.x), axis=-1)
        seen = joined[..., state.shape[-1] - self.reach :]
        if length == 0:  # the library has no results without extents
            seen = np.concatenate((seen, np.zeros((*seen.shape[:2], 1), seen.dtype)), axis=-1)
        y = _computed(call, 1, seen, self.weight[:, np.newaxis], self.bias, 1, 0, 1, channels)
        y = y[..., :length]
        if self.activation is None:
            return y, joined
        active = call.empty(y.shape, call.dtype)
        tensors = {"x": call.tensor(y), "y": call.tensor(active)}
        c_abi.call("activation", "fwd", context(), **tensors, function="silu")
        return active, joined
