# SPDX-License-Identifier: Apache-2.0
"""The records of the scans, whose derivatives are scans and linear recurrences.

Derivatives see a scan as that of one sequence, along the last dimension and from its beginning, in
which init, or what is neutral, comes before the elements: an inclusive scan lacks the first of the
results, an exclusive one the last. Products and logsumexps are differentiated in double.
"""

import torch

from isobit.torch.activations import ACTIVATION, CODES
from isobit.torch.records import NARROW, Axis, Operator

# As isobit_scan_args number them.
KINDS = ("sum", "prod", "max", "min", "logsumexp")
CODE = {name: code for code, name in enumerate(KINDS)}
_NEUTRAL = {"prod": 1.0, "logsumexp": -torch.inf}


def _axes(call):
    dims = max(call.x.ndim, 1)
    along = call.dim % dims
    for dim in range(call.x.ndim):
        if dim == along:
            continue
        cut = {"x": dim}
        if call.init is not None:
            cut["init"] = dim - (dim > along)
        if getattr(call, "reset", None) is not None:
            cut["reset"] = dim
        yield Axis(cut, (dim,) * (2 if call.kind in (CODE["max"], CODE["min"]) else 1))


class _Sequence:
    """How tensors of a call lie as sequences of which each is scanned from its beginning."""

    def __init__(self, call, rank):
        self.number, self.exclusive, self.reverse = rank == 0, call.exclusive, call.reverse
        self.dim = call.dim

    def of(self, tensor):
        """A tensor of x's shape."""
        if self.number:
            return tensor.reshape(1)
        last = tensor.movedim(self.dim, -1)
        return last.flip(-1) if self.reverse else last

    def back(self, sequence):
        if self.number:
            return sequence.reshape(())
        last = sequence.flip(-1) if self.reverse else sequence
        return last.movedim(-1, self.dim)

    def results(self, sequence):
        """Of the results with the first and the last, those that the call has."""
        length = sequence.shape[-1] - 1
        return self.back(sequence.narrow(-1, 0 if self.exclusive else 1, length))

    def into_results(self, grad):
        """The other way: the results that the call lacks pass nothing on."""
        grad = self.of(grad)
        nothing = _column(grad, 0.0)
        return torch.cat((grad, nothing) if self.exclusive else (nothing, grad), -1)

    def with_first(self, first, tensor):
        return torch.cat((first.unsqueeze(-1), self.of(tensor)), -1)


def _part(tensor, begin, end):
    """tensor[..., begin:end], which PyTorch's older vmap, of batched gradients, refuses."""
    return tensor.narrow(-1, begin, max(end - begin, 0))


def _column(like, value):
    return like.new_full((*like.shape[:-1], 1), value)


def _first(like, init, value):
    """What comes before the elements."""
    return _column(like, value).squeeze(-1) if init is None else init


def _sum(x, reverse=False, reset=None):
    """Along the last dimension."""
    return SCAN(x, None, reset, CODE["sum"], -1, False, reverse)


def _recurrence(given, factors):
    """r with r[j] = given[j] + factors[j] r[j + 1] along the last dimension; there is one factor
    less. Every step doubles how many terms each r has, so that as many steps are made as the length
    has digits, each in the same order wherever it is computed."""
    r, ahead = given, 1
    while ahead < given.shape[-1]:
        length, count = r.shape[-1], factors.shape[-1]
        more = _part(r, 0, length - ahead) + factors * _part(r, ahead, length)
        r = torch.cat((more, _part(r, length - ahead, length)), -1)
        if count > ahead:
            factors = _part(factors, 0, count - ahead) * _part(factors, ahead, count)
        ahead *= 2
    return r


def _forward(given, factors):
    """t with t[i] = given[i] + factors[i - 1] t[i - 1]."""
    return _recurrence(given.flip(-1), factors.flip(-1)).flip(-1)


def _exp(x):
    return ACTIVATION(x, CODES["exp"])


def _minus(a, b):
    """exp(a - b), 0 where a is -inf: b is at least a, and such terms are no part of it."""
    nothing = a == -torch.inf
    apart = a.masked_fill(nothing, 0) - b.masked_fill(nothing, 0)
    return _exp(apart).masked_fill(nothing, 0)


class _Weights:
    """Of a product or a logsumexp Z of a sequence X: `own`, the derivative of Z[j] by X[j], and
    `next`, that of Z[j + 1] by Z[j]."""

    def __init__(self, call):
        lies = self.lies = _Sequence(call, call.x.dim())
        kind = KINDS[call.kind]
        x = call.x.double()
        init = None if call.init is None else call.init.double()
        sequence = lies.with_first(_first(lies.of(x), init, _NEUTRAL[kind]), x)
        length = sequence.shape[-1]
        if kind == "prod":
            self.own = SCAN(sequence, None, None, call.kind, -1, True)
            self.next = _part(sequence, 1, length)
        else:
            # Results are the largest so far plus the logarithm of a sum from 1 to the length: a
            # result rounded to one number may be so far from it that its exponential has no digits.
            # What is subtracted is no part of any derivative, as it cancels.
            largest = SCAN_EXTREME(sequence.detach(), None, CODE["max"], -1)[0]
            terms = _minus(sequence, largest)
            shrunk = _minus(_part(largest, 0, length - 1), _part(largest, 1, length))
            sums = _forward(terms, shrunk)
            sums = sums.masked_fill(largest == -torch.inf, 1)
            self.own = terms / sums
            self.next = _part(sums, 0, length - 1) * shrunk / _part(sums, 1, length)


def _no_segments(call):
    if call.reset is not None and (call.init is not None or KINDS[call.kind] != "sum"):
        raise NotImplementedError(f"scan has no derivative for segments of a {KINDS[call.kind]}")


def _gradients(call, wanted, grad):
    _no_segments(call)
    if KINDS[call.kind] == "sum":
        return _sum_gradients(call, wanted, grad)
    weights = _Weights(call)
    lies = weights.lies
    found = weights.own * _recurrence(lies.into_results(grad.double()), weights.next)
    result = {"x": lies.back(_part(found, 1, found.shape[-1])).to(call.x.dtype)}
    if wanted.init:
        result["init"] = found.select(-1, 0).to(grad.dtype)
    return result


def _sum_gradients(call, wanted, grad):
    result = {}
    more = (call.dim, call.exclusive, not call.reverse)
    if wanted.x:
        found = SCAN(grad, None, call.reset, call.kind, *more)
        result["x"] = found.to(call.x.dtype)
    if wanted.init:
        sequence = _Sequence(call, grad.dim()).of(grad)
        total = _sum(sequence).select(-1, -1) if sequence.shape[-1] else sequence.sum(-1)
        result["init"] = total
    return result


def _tangents(call, along):
    _no_segments(call)
    if KINDS[call.kind] == "sum":
        x = along.x
        if x is None:
            x = torch.zeros(call.x.shape, dtype=call.x.dtype, device=along.init.device)
        more = (call.dim, call.exclusive, call.reverse, call.y.dtype)
        return SCAN(x, along.init, call.reset, call.kind, *more)
    weights = _Weights(call)
    x = torch.zeros_like(call.x) if along.x is None else along.x
    first = _first(weights.lies.of(x), along.init, 0.0)
    moved = weights.own * weights.lies.with_first(first.double(), x.double())
    return weights.lies.results(_forward(moved, weights.next)).to(call.y.dtype)


def _dtype(call):
    if call.dtype is not None:
        return call.dtype
    return torch.int64 if call.x.dtype == torch.int32 else call.x.dtype


def _in_float32(_record, call):
    """PyTorch's rule for sums and products under autocast for CUDA."""
    asked = call.dtype is None and KINDS[call.kind] in ("sum", "prod")
    if not asked or call.x.dtype not in NARROW:
        return {}
    init = call.init
    return {
        "dtype": torch.float32,
        "init": init.float() if init is not None and init.dtype in NARROW else init,
    }


_in_float32.keys = ("AutocastCUDA",)


def _together(call):
    return call.x.dim() > 1  # a single number has no dimension to count from


SCAN = Operator(
    "scan",
    lambda call: call.x.new_empty(call.x.shape, dtype=_dtype(call)),
    rows=("x", "init", "reset"),
    dims=("dim",),
    together=_together,
    axes=_axes,
    keeps=("x", "init", "reset"),
    knows=("y",),
    gradients=_gradients,
    tangents=_tangents,
    autocast=_in_float32,
)


def _extreme_gradients(call, wanted, grad, _index):
    """Results that stand at one place are neighbours, and the place is the first of them: their
    gradients are the sum of a segment, which begins there."""
    lies = _Sequence(call, grad.dim())
    grad, index = lies.into_results(grad), lies.of(call.index)
    length = index.shape[-1]
    places = torch.arange(length, device=index.device)
    if call.reverse:
        index = torch.where(index < 0, index, length - 1 - index)
    if call.exclusive:  # of the last result nobody knows where it stands, and nothing comes from it
        index = torch.cat((index, _column(index, length - 1)), -1).narrow(-1, 1, length)
    begins = torch.cat((_column(index, 0), index == places), -1).to(torch.bool)
    totals = _sum(grad, reverse=True, reset=begins)
    result = {"x": lies.back(_part(totals.masked_fill(~begins, 0), 1, length + 1))}
    if wanted.init:
        result["init"] = totals.select(-1, 0)
    return result


def _extreme_tangents(call, along):
    index = call.index
    if along.x is None:
        taken = torch.zeros(index.shape, dtype=along.init.dtype, device=index.device)
    elif index.dim() == 0 or index.shape[call.dim] == 0:
        taken = along.x
    else:
        taken = along.x.gather(call.dim, index.clamp(min=0))
    if along.init is None:
        return taken.masked_fill(index < 0, 0), None
    init = along.init if index.dim() == 0 else along.init.unsqueeze(call.dim)
    return torch.where(index < 0, init, taken), None


SCAN_EXTREME = Operator(
    "scan_extreme",
    lambda call: (
        call.x.new_empty(call.x.shape),
        call.x.new_empty(call.x.shape, dtype=torch.int64),
    ),
    outputs=("y", "index"),
    rows=("x", "init"),
    dims=("dim",),
    together=_together,
    axes=_axes,
    keeps=("index",),
    gradients=_extreme_gradients,
    tangents=_extreme_tangents,
)

RECORDS = (SCAN, SCAN_EXTREME)
