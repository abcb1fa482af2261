# SPDX-License-Identifier: Apache-2.0
"""The scans: torch's running sums, products, extremes and logsumexps, with the same bits wherever
they are computed."""

import torch

from isobit.torch.functional import overridable, run_as
from isobit.torch.scanning import CODE, KINDS, SCAN, SCAN_EXTREME

_NARROW = (torch.bool, torch.uint8, torch.int8, torch.int16)  # computed in int64
_EXACT = (*_NARROW, torch.int32, torch.int64)
# In what else than its own a dtype is summed without being converted before.
_WIDER = {
    torch.float32: torch.float64,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.int32: torch.int64,
}


def _tensors(input, init, dtype):
    """Those of a call, converted where they are tensors."""
    return {
        name: each.to(dtype) if isinstance(each, torch.Tensor) else each
        for name, each in (("x", input), ("init", init))
    }


def _scan(function, kind, tensors, dim, exclusive, reverse, dtype=None):
    options = {"dim": dim, "exclusive": exclusive, "reverse": reverse, "dtype": dtype}
    return run_as(function, SCAN, {**tensors, "reset": None}, kind=CODE[kind], **options)


def _accumulated(function, kind, input, dim, dtype, exclusive, reverse, init):
    own = getattr(input, "dtype", None)
    if dtype is None:
        dtype = torch.int64 if own in _EXACT else own
    if dtype is torch.bool:
        raise ValueError(f"{function}: dtype is torch.bool, which has no sums or products")
    tensors = {"x": input, "init": init}
    if dtype in _NARROW:
        tensors = {
            name: each.to(torch.int64) if each is not None else None
            for name, each in _tensors(input, init, dtype).items()
        }
        return _scan(function, kind, tensors, dim, exclusive, reverse).to(dtype)
    if own is not None and dtype not in (own, _WIDER.get(own)):
        tensors["x"] = input.to(dtype)
    asked = dtype if own in _EXACT or dtype != own else None  # then autocast may choose
    return _scan(function, kind, tensors, dim, exclusive, reverse, asked)


@overridable
def cumsum(input, dim, *, dtype=None, exclusive=False, reverse=False, init=None):
    """torch.cumsum. dtype: the type of the result and of the sums. exclusive: of what comes before
    each element only. reverse: from the end to the beginning. init: what comes before the first, of
    the shape of input without dim and the type of the result."""
    return _accumulated("cumsum", "sum", input, dim, dtype, exclusive, reverse, init)


@overridable
def cumprod(input, dim, *, dtype=None, exclusive=False, reverse=False, init=None):
    """torch.cumprod; see cumsum. None leaves the range of its type before the result does."""
    return _accumulated("cumprod", "prod", input, dim, dtype, exclusive, reverse, init)


@overridable
def logcumsumexp(input, dim, *, exclusive=False, reverse=False, init=None):
    """torch.logcumsumexp; see cumsum."""
    tensors = {"x": input, "init": init}
    return _scan("logcumsumexp", "logsumexp", tensors, dim, exclusive, reverse)


def _lowest(dtype):
    return 0 if dtype is torch.bool else torch.iinfo(dtype).min


def _highest(dtype):
    return 1 if dtype is torch.bool else torch.iinfo(dtype).max


def _extremes(kind, results, input, dim, exclusive, reverse, init):
    own = getattr(input, "dtype", None)
    tensors = {"x": input, "init": init}
    if own in _NARROW:
        tensors = _tensors(input, init, torch.int64)
        if exclusive and init is None:  # the least of its own type, not of int64
            least = _lowest(own) if kind == "max" else _highest(own)
            first = tensors["x"] if input.dim() == 0 else tensors["x"].sum(dim)
            tensors["init"] = torch.full_like(first, least)
    options = {"dim": dim, "exclusive": exclusive, "reverse": reverse}
    values, indices = run_as(f"cum{kind}", SCAN_EXTREME, tensors, kind=CODE[kind], **options)
    return results((values.to(own) if own in _NARROW else values, indices))


@overridable
def cummax(input, dim, *, exclusive=False, reverse=False, init=None):
    """torch.cummax: (values, indices) of the largest so far, the later of equals; -1 where init is,
    or where nothing comes before. See cumsum."""
    results = torch.return_types.cummax
    return _extremes("max", results, input, dim, exclusive, reverse, init)


@overridable
def cummin(input, dim, *, exclusive=False, reverse=False, init=None):
    """torch.cummin; see cummax."""
    results = torch.return_types.cummin
    return _extremes("min", results, input, dim, exclusive, reverse, init)


_FUNCTIONS = {
    "sum": cumsum,
    "prod": cumprod,
    "max": cummax,
    "min": cummin,
    "logsumexp": logcumsumexp,
}


class Scan(torch.nn.Module):
    """A scan along a dimension. kind: sum, prod, max, min or logsumexp."""

    def __init__(self, kind, dim=-1, exclusive=False, reverse=False):
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"Scan: kind is {kind!r}; allowed: {', '.join(KINDS)}")
        self.kind, self.dim, self.exclusive, self.reverse = kind, dim, exclusive, reverse

    def forward(self, input, init=None):
        more = {"exclusive": self.exclusive, "reverse": self.reverse, "init": init}
        return _FUNCTIONS[self.kind](input, self.dim, **more)

    def extra_repr(self):
        words = f"{self.kind!r}, dim={self.dim}"
        return f"{words}, exclusive={self.exclusive}, reverse={self.reverse}"
