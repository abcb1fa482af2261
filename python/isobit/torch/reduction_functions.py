# SPDX-License-Identifier: Apache-2.0
"""sum, mean, var, std, var_mean, norm, amax and amin: PyTorch's, over any dimensions,
with the same bits wherever they are computed, and whatever the strides."""

import math

import torch

from isobit import _arguments
from isobit.torch.functional import overridable, run_as
from isobit.torch.records import NARROW
from isobit.torch.reductions import CODES, REDUCE, TOTAL

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
ORDERS = {2.0: "l2", 1.0: "l1", math.inf: "largest", -math.inf: "smallest", 0.0: "nonzero"}


def _check(function, input):
    if not isinstance(input, torch.Tensor):
        raise TypeError(f"{function}: input must be a Tensor; it is {type(input).__name__}")
    if input.is_nested:
        raise NotImplementedError(f"{function}: input is nested; its values() are rows")


def _dims(function, dim, rank):
    """Those that are reduced, counted from the end; of None, and of none, all."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(-rank, 0))
    given = dim if isinstance(dim, (tuple, list)) else (dim,)
    places = [_arguments.dim(function, "dim", each, rank) for each in given]
    if len({*places}) < len(places):
        raise ValueError(f"{function}: dim is {dim}, which has a dimension twice")
    return tuple(sorted(place - rank for place in places)) if rank else ()


def _cast(function, input, dtype):
    """(input, dtype of the result): PyTorch casts the input. A wider result of 16 bits is that of a
    wider input."""
    if dtype is None or dtype == input.dtype:
        return input, None
    if dtype not in DTYPES:
        allowed = ", ".join(map(str, DTYPES))
        raise ValueError(f"{function}: dtype is {dtype}; allowed: None, {allowed}")
    if input.dtype in NARROW and dtype == torch.float32:
        return input, dtype
    return input.to(dtype), None


def _shaped(y, rank, dims, keepdim):
    if keepdim:
        for dim in dims:
            y = y.unsqueeze(dim + rank)
    return y


def _total(function, input, dim, keepdim, dtype, mean):
    _check(function, input)
    rank = input.dim()
    dims = _dims(function, dim, rank)
    input, dtype = _cast(function, input, dtype)
    y = run_as(function, TOTAL, {"x": input}, dims=dims, mean=mean, dtype=dtype)
    return _shaped(y, rank, dims, keepdim)


@overridable
def sum(input, dim=None, keepdim=False, *, dtype=None):
    """torch.sum of floating-point tensors, added in the order of their indices."""
    return _total("sum", input, dim, keepdim, dtype, False)


@overridable
def mean(input, dim=None, keepdim=False, *, dtype=None):
    """torch.mean. Where a sum has left the range of its type, the mean has not."""
    return _total("mean", input, dim, keepdim, dtype, True)


def _reduce(function, input, dim, keepdim, dtype, kind, correction=0.0):
    _check(function, input)
    rank = input.dim()
    dims = _dims(function, dim, rank)
    input, dtype = _cast(function, input, dtype)
    options = {"dims": dims, "kind": CODES[kind], "correction": correction, "dtype": dtype}
    y = run_as(function, REDUCE, {"x": input}, **options)
    return _shaped(y, rank, dims, keepdim)


def _corrected(function, dim, unbiased, correction):
    """(dim, correction) of the ways in which PyTorch is told."""
    if isinstance(dim, bool):  # torch.var(x, False)
        if unbiased is not None:
            raise TypeError(f"{function}: unbiased is given twice")
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise TypeError(f"{function}: unbiased and correction are both given")
    if unbiased is not None:
        return dim, float(bool(unbiased))
    return dim, 1.0 if correction is None else float(correction)


@overridable
def var(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """torch.var, in the two rounds of LayerNorm's statistics: right for rows far from zero, for
    constant and for huge ones. It divides by the count less `correction`, 1 if not said."""
    dim, correction = _corrected("var", dim, unbiased, correction)
    return _reduce("var", input, dim, keepdim, None, "var", correction)


@overridable
def std(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """The root of var."""
    dim, correction = _corrected("std", dim, unbiased, correction)
    return _reduce("std", input, dim, keepdim, None, "std", correction)


@overridable
def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """(var, mean)."""
    dim, correction = _corrected("var_mean", dim, unbiased, correction)
    variance = _reduce("var_mean", input, dim, keepdim, None, "var", correction)
    return variance, _total("var_mean", input, dim, keepdim, None, True)


@overridable
def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """(std, mean)."""
    dim, correction = _corrected("std_mean", dim, unbiased, correction)
    deviation = _reduce("std_mean", input, dim, keepdim, None, "std", correction)
    return deviation, _total("std_mean", input, dim, keepdim, None, True)


@overridable
def norm(input, ord=2, dim=None, keepdim=False, *, dtype=None):
    """torch.linalg.vector_norm of the orders 2, 1, inf, -inf and 0."""
    kind = None if isinstance(ord, str) or ord is None else ORDERS.get(float(ord))
    if kind is None:
        raise NotImplementedError(
            f"norm: ord is {ord!r}; allowed: 2, 1, inf, -inf and 0; torch.linalg.vector_norm has "
            "others"
        )
    _check("norm", input)
    if kind in ("largest", "smallest"):
        _require_elements("norm", input, dim)
    return _reduce("norm", input, dim, keepdim, dtype, kind)


def _require_elements(function, input, dim):
    if any(input.shape[each] == 0 for each in _dims(function, dim, input.dim())):
        raise ValueError(f"{function}: input has shape {tuple(input.shape)}; no element is largest")


def _bound(function, input, dim, keepdim, kind):
    _check(function, input)
    _require_elements(function, input, dim)
    return _reduce(function, input, dim, keepdim, None, kind)


@overridable
def amax(input, dim=(), keepdim=False):
    """torch.amax of floating-point tensors, +0 of zeros. Equal elements share its gradient."""
    return _bound("amax", input, dim, keepdim, "max")


@overridable
def amin(input, dim=(), keepdim=False):
    """torch.amin of floating-point tensors, +0 of zeros. Equal elements share its gradient."""
    return _bound("amin", input, dim, keepdim, "min")
