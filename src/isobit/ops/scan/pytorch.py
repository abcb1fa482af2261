# SPDX-License-Identifier: Apache-2.0
"""The scans in PyTorch: what they mean, how one writes them, into given memory, and as a textbook
makes a work-efficient scan of any dimension from whole-tensor operations."""

import torch

STANDARD = {
    "sum": torch.cumsum,
    "prod": torch.cumprod,
    "max": lambda x, dim: torch.cummax(x, dim).values,
    "min": lambda x, dim: torch.cummin(x, dim).values,
    "logsumexp": torch.logcumsumexp,
}
COMBINE = {
    "sum": torch.add,
    "prod": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
    "logsumexp": torch.logaddexp,
}
_IN_PLACE = {"sum": torch.cumsum, "prod": torch.cumprod, "logsumexp": torch.logcumsumexp}


def _neutral(kind, dtype):
    if kind in ("sum", "prod"):
        return 0 if kind == "sum" else 1
    if dtype.is_floating_point:
        return torch.inf if kind == "min" else -torch.inf
    return torch.iinfo(dtype).max if kind == "min" else torch.iinfo(dtype).min


def _before(y, x, dim, kind, init):
    """An exclusive scan of an inclusive one."""
    if init is None:
        init = torch.full_like(y.narrow(dim, 0, 1).squeeze(dim), _neutral(kind, y.dtype))
    return torch.cat((init.unsqueeze(dim), y.narrow(dim, 0, x.shape[dim] - 1)), dim)


def reference(x, dim, *, kind, exclusive=False, reverse=False, init=None):
    """In double, or exact, one element after the other, rounded once."""
    wide = torch.float64 if x.dtype.is_floating_point else x.dtype
    elements = list(x.to(wide).unbind(dim))
    if reverse:
        elements.reverse()
    shape = elements[0]
    so_far = torch.full_like(shape, _neutral(kind, wide)) if init is None else init.to(wide)
    results = []
    for element in elements:
        results.append(so_far)
        so_far = COMBINE[kind](so_far, element)
    if not exclusive:
        results = [*results[1:], so_far]
    if reverse:
        results.reverse()
    return torch.stack(results, dim).to(x.dtype)


def _composed(scan, x, dim, kind, exclusive, reverse, init):
    """Of an inclusive scan from the beginning."""
    x = x.flip(dim) if reverse else x
    y = scan(x, dim)
    if init is not None:
        y = COMBINE[kind](init.unsqueeze(dim), y)
    if exclusive:
        y = _before(y, x, dim, kind, init)
    return y.flip(dim) if reverse else y


def standard(x, dim, *, kind, exclusive=False, reverse=False, init=None):
    return _composed(STANDARD[kind], x, dim, kind, exclusive, reverse, init)


def fused(x, dim, *, kind, out):
    """Into memory that the caller has."""
    if kind in _IN_PLACE:
        return _IN_PLACE[kind](x, dim, out=out)
    find = torch.cummax if kind == "max" else torch.cummin
    return find(x, dim, out=(out, torch.empty_like(x, dtype=torch.int64))).values


def _pairs(x, kind):
    """Along the first dimension: pairs are combined, their scan is that of half the length, and
    gives every second result; the others take one more combination. 2n in all."""
    length = x.shape[0]
    if length == 1:
        return x.clone()
    combine = COMBINE[kind]
    odd = _pairs(combine(x[0 : length - 1 : 2], x[1:length:2]), kind)
    y = torch.empty_like(x)
    y[0], y[1:length:2] = x[0], odd
    y[2:length:2] = combine(odd[: (length - 1) // 2], x[2:length:2])
    return y


def work_efficient(x, dim, *, kind, exclusive=False, reverse=False, init=None):
    def scan(x, dim):
        return _pairs(x.movedim(dim, 0), kind).movedim(0, dim)

    return _composed(scan, x, dim, kind, exclusive, reverse, init)
