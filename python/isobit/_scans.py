# SPDX-License-Identifier: Apache-2.0
"""The scans of isobit.numpy: running sums, products, extremes and logsumexps along a dimension."""

import numpy as np

from isobit import _arguments, _arrays, c_abi
from isobit._calls import FLOATS, Call, context

_INTEGERS = ("int32", "int64")
# In what else than its own a dtype is summed without being converted before.
_WIDER = {"float32": "float64", "float16": "float32", "bfloat16": "float32", "int32": "int64"}


def cumsum(x, dim, *, dtype=None, exclusive=False, reverse=False, init=None):
    """Running sums along a dimension. dtype: the type of the result and of the sums, unless given
    that of x, but int64 for int32. exclusive: of what comes before each element only. reverse: from
    the end to the beginning. init: what comes before the first, of the shape of x without dim."""
    return _accumulated("cumsum", "sum", x, dim, dtype, exclusive, reverse, init)


def cumprod(x, dim, *, dtype=None, exclusive=False, reverse=False, init=None):
    """Running products; see cumsum. None leaves the range of its dtype before the result does."""
    return _accumulated("cumprod", "prod", x, dim, dtype, exclusive, reverse, init)


def logcumsumexp(x, dim, *, exclusive=False, reverse=False, init=None):
    """log of the running sums of exp(x); see cumsum."""
    call = _Scan("logcumsumexp", x, dim, FLOATS)
    return call.run("logsumexp", call.dtype, exclusive, reverse, init)


def cummax(x, dim, *, exclusive=False, reverse=False, init=None):
    """(values, indices) of the largest so far, the later of equals; -1 where init is."""
    call = _Scan("cummax", x, dim)
    return call.run("max", call.dtype, exclusive, reverse, init)


def cummin(x, dim, *, exclusive=False, reverse=False, init=None):
    """(values, indices) of the smallest so far, the later of equals; -1 where init is."""
    call = _Scan("cummin", x, dim)
    return call.run("min", call.dtype, exclusive, reverse, init)


def _accumulated(function, kind, x, dim, dtype, exclusive, reverse, init):
    call = _Scan(function, x, dim)
    own = call.dtype
    if dtype is None:
        dtype = "int64" if own == "int32" else own
    else:
        allowed = (own, _WIDER[own]) if own in _WIDER else (own,)
        dtype = call.call.named("dtype", dtype, allowed)
    return call.run(kind, dtype, exclusive, reverse, init)


class _Scan:
    """A call, whose arrays are seen with the dimension that is scanned before a last one of 1."""

    def __init__(self, function, x, dim, allowed=(*FLOATS, *_INTEGERS)):
        self.function = function
        self.call = Call(function, "x", x, allowed)
        self.dtype, self.shape = self.call.dtype, self.call.x.shape
        self.dim = _arguments.dim(function, "dim", dim, len(self.shape))
        if len(self.shape) >= c_abi.MAX_RANK:
            raise ValueError(
                f"{function}: x has {len(self.shape)} dimensions; allowed: at most "
                f"{c_abi.MAX_RANK - 1}"
            )

    def run(self, kind, dtype, exclusive, reverse, init):
        y = self.call.empty(self.shape, dtype)
        arrays = {"x": self.seen(self.call.x), "y": self.seen(y)}
        if init is not None:
            shape = self.shape[: self.dim] + self.shape[self.dim + 1 :]
            array = _arrays.checked(self.function, "init", init, (dtype,), ("y", dtype))
            if array.shape != shape:
                raise ValueError(
                    f"{self.function}: init has shape {array.shape}; x without dim has {shape}"
                )
            arrays["init"] = _arrays.strided(array[..., np.newaxis])
        found = None
        if kind in ("max", "min"):
            found = self.call.empty(self.shape, "int64")
            arrays["index"] = self.seen(found)
        options = {"kind": kind, "exclusive": bool(exclusive), "reverse": bool(reverse)}
        c_abi.call("scan", "fwd", context(), **arrays, **options)
        result = self.call.result
        return result(y) if found is None else (result(y), result(found))

    def seen(self, array):
        if array.ndim == 0:
            array = array.reshape(1)
        return _arrays.strided(np.moveaxis(array, self.dim, -1)[..., np.newaxis])
