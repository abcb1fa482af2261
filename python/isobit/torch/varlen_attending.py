# SPDX-License-Identifier: Apache-2.0
"""The records of attention of packed sequences and of its backward. They are operators of Python,
which look at the offsets and call those of attention, once for all sequences where they lie. Only
derivatives that are formulas call them for each run of sequences of equal lengths."""

import sys
from functools import wraps
from itertools import pairwise
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch._guards import detect_fake_mode

from isobit.torch.attending import ATTENTION, ATTENTION_BACKWARD, of_gradients, real
from isobit.torch.records import Axis, Operator, narrow_inputs

NAME = "varlen_attention"
_OPTIONS = "int causal=0, int window=0, float scale=0., float softcap=0."
_DROPOUT = "float dropout=0., Tensor? seed=None"
_FORWARD = (
    "(Tensor q, Tensor k, Tensor v, Tensor cu_q, Tensor cu_k, "
    f"{_OPTIONS}, {_DROPOUT}, int arithmetic=0)"
)
_BACKWARD = (
    "(Tensor grad_y, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor cu_q, Tensor cu_k, "
    f"Tensor y, Tensor max, Tensor sum, {_OPTIONS}, "
    f"bool needs_q=True, bool needs_k=True, bool needs_v=True, {_DROPOUT}, "
    "int arithmetic=0)"
)


def _uncompiled(function):
    """One that torch.compile calls as it is, instead of asking what numbers tensors hold."""
    opaque = torch._disable_dynamo(function)

    @wraps(function)
    def call(*arguments):
        # Before anything is compiled, opaque would import what compiles.
        return (opaque if "torch._dynamo" in sys.modules else function)(*arguments)

    return call


class _Run(NamedTuple):
    """Sequences of equal lengths that follow one another, which are one call."""

    before: int  # sequences
    count: int
    first_q: int
    queries: int  # of each
    first_k: int
    keys: int


def _starts(name, offsets, of, total):
    """Where sequences begin, and the last ends."""
    found = offsets.tolist()
    if found[0] != 0:
        raise ValueError(f"{NAME}: {name}[0] is {found[0]}; must be 0")
    for i, (before, here) in enumerate(pairwise(found), 1):
        if here < before:
            raise ValueError(f"{NAME}: {name}[{i}] is {here}; must be {before} or more")
    if found[-1] > total:
        raise ValueError(f"{NAME}: {name} ends with {found[-1]}; {of} has {total} rows")
    return found


def _all_starts(q, k, cu_q, cu_k):
    starts_q = _starts("cu_seqlens_q", cu_q, "query", q.shape[0])
    # What is given once holds for both, and is waited for once.
    same = cu_k is cu_q and k.shape[0] >= q.shape[0]
    return starts_q, starts_q if same else _starts("cu_seqlens_k", cu_k, "key", k.shape[0])


def _runs(q, k, cu_q, cu_k):
    starts_q, starts_k = _all_starts(q, k, cu_q, cu_k)
    found = []
    ends = zip(pairwise(starts_q), pairwise(starts_k), strict=True)
    for before, ((q0, q1), (k0, k1)) in enumerate(ends):
        queries, keys = q1 - q0, k1 - k0
        if found and found[-1].queries == queries and found[-1].keys == keys:
            found[-1] = found[-1]._replace(count=found[-1].count + 1)
        else:
            found.append(_Run(before, 1, q0, queries, k0, keys))
    return found


def _part(tensor, first, count, length):
    """(count, heads, length, elements) of (total, heads, elements), without a copy."""
    rows = tensor.narrow(0, first, count * length)
    return rows.unflatten(0, (count, length)).transpose(1, 2)


def _statistic(tensor, run):
    """(count, heads, queries) of (heads, total), without a copy."""
    rows = tensor.narrow(1, run.first_q, run.count * run.queries)
    return rows.unflatten(1, (run.count, run.queries)).transpose(0, 1)


def _of_queries(tensor, run):
    return _part(tensor, run.first_q, run.count, run.queries)


def _of_keys(tensor, run):
    return _part(tensor, run.first_k, run.count, run.keys)


# How packed tensors are cut.
_CUTS = {"q": _of_queries, "k": _of_keys, "v": _of_keys, "grad_y": _of_queries, "y": _of_queries}
_CUTS |= dict.fromkeys(("grad_lse", "lse", "max", "sum"), _statistic)


def _cut(name, tensor, run):
    return None if tensor is None else _CUTS[name](tensor, run)


def _results(call):
    q = call.q
    rows = (*q.shape[:-1], call.v.shape[-1])
    statistics = [q.new_empty((q.shape[1], q.shape[0]), dtype=real(q.dtype)) for _ in range(3)]
    return q.new_empty(rows), *statistics


def _options(call):
    return call.causal, call.window, call.scale, call.softcap


def _of_attention(call):
    """seed, causal, window, scale, softcap, dropout"""
    return call.seed, *_options(call), call.dropout


def _whole(call, *names):
    """Packed tensors as those of a batch of one."""
    for name in names:
        each = getattr(call, name)
        if each is not None:
            each = (each if _CUTS[name] is _statistic else each.transpose(0, 1))[None]
        yield each


def _starts_of(call):
    _all_starts(call.q, call.k, call.cu_q, call.cu_k)
    return tuple(each.to(call.q.device, torch.int64) for each in (call.cu_q, call.cu_k))


# No slopes, nor ranges of keys.
_NOT_SAID = (None, None, None)


@_uncompiled
def _forward(*arguments):
    call = VARLEN_ATTENTION.call(arguments)
    starts = _starts_of(call)
    with torch._C._AutoDispatchBelowAutograd():
        y, *statistics = ATTENTION.overload("_")(
            *(*_whole(call, "q", "k", "v"), None, None, *_of_attention(call)),
            *(*_NOT_SAID, *starts, None, call.arithmetic),
        )
    # As fake tensors have it, rows lie one behind the other.
    return y[0].transpose(0, 1).contiguous(), *(each[0] for each in statistics)


@_uncompiled
def _backward(*arguments):
    call = VARLEN_ATTENTION_BACKWARD.call(arguments)
    starts = _starts_of(call)
    needs = (call.needs_q, call.needs_k, call.needs_v)
    with torch._C._AutoDispatchBelowAutograd():
        found = ATTENTION_BACKWARD.overload("_")(
            *_whole(call, "grad_y", "grad_lse", "q", "k", "v"),
            *(None, None, *_whole(call, "y", "max", "sum"), *_of_attention(call), *needs, False),
            *(*_NOT_SAID, *starts, call.arithmetic),
        )
    return tuple(
        each[0].transpose(0, 1).contiguous() if needed else each
        for each, needed in zip(found, needs, strict=False)
    )


_library = torch.library.Library("isobit", "FRAGMENT")
for _name, _schema, _kernel in (
    (NAME, f"{_FORWARD} -> (Tensor, Tensor, Tensor, Tensor)", _forward),
    (f"{NAME}_backward", f"{_BACKWARD} -> (Tensor, Tensor, Tensor)", _backward),
):
    for _prefix in ("", "_"):
        _library.define(f"{_prefix}{_name}{_schema}")
        for _device in ("CPU", "CUDA"):
            _library.impl(f"{_prefix}{_name}", _kernel, _device)


def _axes(call):
    """Heads, where each has its own of k. What is dropped depends on their numbers."""
    if call.dropout == 0 and call.q.shape[1] == call.k.shape[1]:
        yield Axis({"q": 1, "k": 1, "v": 1}, (1, 0, 0, 0))


def _first(call, wanted, grad_y, grad_lse, _max, _sum):
    if grad_y is None:
        grad_y = torch.zeros_like(call.y)
    needs = (wanted.q, wanted.k, wanted.v)
    tensors = (call.q, call.k, call.v, call.cu_q, call.cu_k, call.y, call.max, call.sum)
    found = VARLEN_ATTENTION_BACKWARD(
        *(grad_y, grad_lse, *tensors, *_options(call), *needs),
        *(call.dropout, call.seed, of_gradients(call)),
    )
    each = zip(_GRADIENTS, found, needs, strict=True)
    return {name: gradient for name, gradient, needed in each if needed}


# Derivatives that attention has as formulas are those of each run, one after the other.

_ABSENT = {"bias": None, "mask": None, "needs_bias": False}
_ABSENT |= dict.fromkeys(("slopes", "key_begin", "key_end"))
_ABSENT |= dict.fromkeys(("query_starts", "key_starts", "blocks"))
_GRADIENTS = ("q", "k", "v")


def _calls(call):
    """(a run, its call of attention) of each."""
    if detect_fake_mode((call.q, call.cu_q)):
        raise NotImplementedError(
            f"{NAME}: compiled code has no derivatives but the first, by backward"
        )
    for run in _runs(call.q, call.k, call.cu_q, call.cu_k):
        cut = {
            name: _cut(name, value, run) if name in _CUTS else value
            for name, value in vars(call).items()
            if name not in ("y", "max", "sum")
        }
        yield run, SimpleNamespace(**cut | _ABSENT, before=run.before)


def _along(names, along, run):
    cut = {name: _cut(name, getattr(along, name), run) for name in names}
    return SimpleNamespace(**cut, bias=None, slopes=None)


def _joined(name, parts, like):
    """A packed tensor of the parts of all runs, and of zeros behind them."""
    if _CUTS[name] is _statistic:
        dim, rows = 1, [each.transpose(0, 1).flatten(1, 2) for each in parts]
    else:
        dim, rows = 0, [each.transpose(1, 2).flatten(0, 1) for each in parts]
    rest = like.shape[dim] - sum(each.shape[dim] for each in rows)
    shape = list(like.shape)
    shape[dim] = rest
    zeros = torch.zeros(shape, dtype=like.dtype, device=like.device)
    return torch.cat([*rows, zeros], dim) if rest or not rows else torch.cat(rows, dim)


@_uncompiled
def _tangents(call, along):
    found = [ATTENTION.tangents(each, _along(_GRADIENTS, along, run)) for run, each in _calls(call)]
    names = zip(VARLEN_ATTENTION.outputs, _results(call), strict=True)
    return tuple(
        _joined(name, [each[i] for each in found], like) for i, (name, like) in enumerate(names)
    )


VARLEN_ATTENTION = Operator(
    NAME,
    _results,
    outputs=("y", "lse", "max", "sum"),
    host=("cu_q", "cu_k", "seed"),
    axes=_axes,
    keeps=("q", "k", "v", "cu_q", "cu_k", "seed", "y", "max", "sum"),
    gradients=_first,
    tangents=_tangents,
    autocast=narrow_inputs("q", "k", "v"),
)


def _gradients_of(call):
    return tuple(
        call.q.new_empty(getattr(call, name).shape if getattr(call, f"needs_{name}") else (0,))
        for name in _GRADIENTS
    )


def _backward_axes(call):
    if call.dropout == 0 and call.q.shape[1] == call.k.shape[1]:
        cut = dict.fromkeys(("grad_y", "q", "k", "v", "y"), 1) | dict.fromkeys(("max", "sum"), 0)
        cut |= {} if call.grad_lse is None else {"grad_lse": 0}
        wanted = (call.needs_q, call.needs_k, call.needs_v)
        yield Axis(cut, tuple(1 if each else None for each in wanted))


_GIVEN = ("grad_y", "grad_lse", *_GRADIENTS)


def _second(call, wanted, *into):
    wanted = SimpleNamespace(**vars(wanted) | {"bias": False})
    needs = [getattr(call, f"needs_{name}") for name in _GRADIENTS]
    # The gradient of one that was not wanted has no elements.
    into = [each if needed else None for each, needed in zip(into, needs, strict=True)]
    found = []
    for run, each in _calls(call):
        cut = (_cut(name, value, run) for name, value in zip(_GRADIENTS, into, strict=True))
        found.append(ATTENTION_BACKWARD.gradients(each, wanted, *cut, None))
    names = [name for name in _GIVEN if getattr(wanted, name) and getattr(call, name) is not None]
    return {
        name: _joined(name, [each[name] for each in found], getattr(call, name)) for name in names
    }


@_uncompiled
def _backward_tangents(call, along):
    found = [
        ATTENTION_BACKWARD.tangents(each, _along(_GIVEN, along, run)) for run, each in _calls(call)
    ]
    return tuple(
        _joined(name, [each[i] for each in found], like) if like.shape != (0,) else like
        for i, (name, like) in enumerate(zip(_GRADIENTS, _gradients_of(call), strict=True))
    )


VARLEN_ATTENTION_BACKWARD = Operator(
    f"{NAME}_backward",
    _gradients_of,
    outputs=("grad_q", "grad_k", "grad_v"),
    like="q",
    host=("cu_q", "cu_k", "seed"),
    axes=_backward_axes,
    keeps=("grad_y", "grad_lse", "q", "k", "v", "cu_q", "cu_k", "seed"),
    knows=("y", "max", "sum"),
    gradients=_second,
    tangents=_backward_tangents,
)
RECORDS = (VARLEN_ATTENTION, VARLEN_ATTENTION_BACKWARD)
