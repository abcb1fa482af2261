# SPDX-License-Identifier: Apache-2.0
"""The records of rope, whose derivative is rope by the opposite angles, and of its tables."""

import torch
from torch.library import register_fake

from isobit.torch.records import Axis, Operator


def _results(call):
    q, k = call.q, call.k
    return q.new_empty(q.shape), q.new_empty(0) if k is None else k.new_empty(k.shape)


def _axes(call):
    """Batches and heads."""
    has_k = getattr(call, "k", None) is not None
    positions = getattr(call, "positions", None)
    for dim in (0, 2):
        cut = {"q": dim} | ({"k": dim} if has_k else {})
        if dim == 0 and positions is not None and positions.ndim == 2:
            cut["positions"] = 0
        yield Axis(cut, (dim, dim if has_k else None))


def _turned(call, q, k, backward):
    """What q and k become, of which one may be absent."""
    more = (call.cos, call.sin, call.positions, call.style, call.offset, backward)
    if q is None:
        return None, None if k is None else ROPE(k, None, *more)[0]
    y_q, y_k = ROPE(q, k, *more)
    return y_q, None if k is None else y_k


def _gradients(call, wanted, into_q, into_k):
    if wanted.cos or wanted.sin:
        raise NotImplementedError("rope has no derivative by cos and sin")
    q, k = _turned(call, into_q, into_k if wanted.k else None, not call.backward)
    return {"q": q, "k": k}


def _tangents(call, along):
    if along.cos is not None or along.sin is not None:
        raise NotImplementedError("rope has no derivative by cos and sin")
    y_q, y_k = _turned(call, along.q, along.k, call.backward)

    def or_zeros(tangent, like):
        if tangent is not None:
            return tangent
        return torch.zeros(like.shape, dtype=like.dtype, device=call.cos.device)

    return or_zeros(y_q, call.y_q), or_zeros(y_k, call.y_k)


ROPE = Operator(
    "rope",
    _results,
    outputs=("y_q", "y_k"),
    axes=_axes,
    keeps=("cos", "sin", "positions"),
    knows=("y_q", "y_k"),
    gradients=_gradients,
    tangents=_tangents,
)


def _tables(call):
    shape = (call.length, call.inv_freq.shape[0])
    dtype = torch.float32 if call.dtype is None else call.dtype
    return tuple(call.inv_freq.new_empty(shape, dtype=dtype) for _ in range(2))


ROPE_TABLES = Operator(
    "rope_tables",
    _tables,
    outputs=("cos", "sin"),
    axes=lambda call: [Axis({"inv_freq": 0}, (1, 1))],
)
RECORDS = (ROPE, ROPE_TABLES)


def _nothing(*_arguments, **_more):
    """What the operator in place returns; its schema says what it changes."""


for _prefix in ("", "_"):
    register_fake(f"isobit::{_prefix}rope_", _nothing)
