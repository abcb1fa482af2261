# SPDX-License-Identifier: Apache-2.0
"""sum, mean, var, std, norm, amax and amin of isobit.numpy."""

import math

from isobit import _arguments, _arrays, c_abi
from isobit._calls import FLOATS, Call, context

_ORDERS = {2.0: "l2", 1.0: "l1", math.inf: "largest", -math.inf: "smallest", 0.0: "nonzero"}


def sum(x, axis=None, *, keepdims=False, dtype=None):
    """The sum of x over some axes, or all, in the order of their indices, with the bits of
    isobit.torch. dtype: float32 beside 16 bits."""
    return _reduced("sum", x, axis, keepdims, dtype, "sum")


def mean(x, axis=None, *, keepdims=False, dtype=None):
    """The mean of x over some axes, or all."""
    return _reduced("mean", x, axis, keepdims, dtype, "mean")


def var(x, axis=None, *, correction=0.0, keepdims=False, dtype=None):
    """The variance, divided by the count less correction."""
    return _reduced("var", x, axis, keepdims, dtype, "var", correction)


def std(x, axis=None, *, correction=0.0, keepdims=False, dtype=None):
    """The root of var."""
    return _reduced("std", x, axis, keepdims, dtype, "std", correction)


def norm(x, ord=2, axis=None, *, keepdims=False, dtype=None):
    """The norm of all elements along some axes as those of one vector, of order 2, 1, inf, -inf or
    0. (A matrix has no norm of its own here.)"""
    needed = "2, 1, inf, -inf or 0"
    ord = _arguments.number("norm", "ord", ord, lambda order: order in _ORDERS, needed)
    return _reduced("norm", x, axis, keepdims, dtype, _ORDERS[ord])


def amax(x, axis=None, *, keepdims=False, dtype=None):
    """The largest element along some axes, or of all; NaN where one is."""
    return _reduced("amax", x, axis, keepdims, dtype, "max")


def amin(x, axis=None, *, keepdims=False, dtype=None):
    """The smallest element along some axes, or of all; NaN where one is."""
    return _reduced("amin", x, axis, keepdims, dtype, "min")


def _axes(function, axis, rank):
    if axis is None:
        return list(range(rank))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    places = [_arguments.dim(function, "axis", each, rank) for each in given]
    if len({*places}) < len(places):
        raise ValueError(f"{function}: axis is {axis}, which has an axis twice")
    return sorted(places) if rank else []


def _reduced(function, x, axis, keepdims, dtype, kind, correction=0.0):
    call = Call(function, "x", x, FLOATS)
    correction = _arguments.real(function, "correction", correction)
    shape, rank = call.x.shape, call.x.ndim
    reduced = _axes(function, axis, rank)
    kept = [each for each in range(rank) if each not in reduced]
    if dtype is None:
        dtype = call.dtype
    else:
        allowed = {call.dtype, "float64" if call.dtype == "float64" else "float32"}
        dtype = call.named("dtype", dtype, tuple(sorted(allowed)))
    of_some = ("largest", "smallest", "max", "min")
    if kind in of_some and math.prod(shape[each] for each in reduced) == 0:
        raise ValueError(f"{function}: x has shape {shape}; no element is largest")
    y_shape = [shape[each] for each in kept]
    y = call.empty(y_shape, dtype)
    # The library keeps the first axes, and reduces one at least.
    array = call.x.transpose(kept + reduced)
    lines, line = y_shape or [1], [shape[each] for each in reduced] or [1]
    if len(lines) + len(line) > c_abi.MAX_RANK:
        lines, line = [math.prod(lines)], [math.prod(line)]
    views = {"x": array.reshape(lines + line), "y": y.reshape(lines)}
    tensors = {name: _arrays.strided(view) for name, view in views.items()}
    c_abi.call("reduce", "fwd", context(), **tensors, reduction=kind, correction=correction)
    if keepdims:
        y_shape = [1 if each in reduced else shape[each] for each in range(rank)]
    return call.result(y.reshape(y_shape))
