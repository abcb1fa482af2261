# SPDX-License-Identifier: Apache-2.0
"""Attention of sequences of several lengths, packed one behind the other or nested, each with the
bits that it has alone."""

import torch

from isobit._attention import _LEAST
from isobit.torch import nested
from isobit.torch.attending import arithmetic_number, autocasts, causal_number
from isobit.torch.functional import _seed, overridable, run
from isobit.torch.varlen_attending import NAME as _OP
from isobit.torch.varlen_attending import VARLEN_ATTENTION

_INDICES = (torch.int32, torch.int64)


def _check_alike(op, query, key, value, enable_gqa):
    """Of packed ones."""
    for name, each in (("key", key), ("value", value)):
        if each.dtype != query.dtype and not autocasts(query):
            raise ValueError(f"{op}: {name} has dtype {each.dtype}; query has {query.dtype}")
    if key.shape[:2] != value.shape[:2]:
        shapes = f"{tuple(key.shape)} and {tuple(value.shape)}"
        raise ValueError(
            f"{op}: key and value have shapes {shapes}; must have equally many rows and heads"
        )
    if query.shape[2] != key.shape[2]:
        raise ValueError(
            f"{op}: key has rows of {key.shape[2]} elements; query has {query.shape[2]}"
        )
    heads, kv_heads = query.shape[1], key.shape[1]
    if heads != kv_heads and not enable_gqa:
        raise ValueError(
            f"{op}: query and key have {heads} and {kv_heads} heads; must have equally many, or "
            "enable_gqa=True"
        )
    if heads != kv_heads and (kv_heads == 0 or heads % kv_heads != 0):
        raise ValueError(f"{op}: query has {heads} heads; must be a multiple of key's {kv_heads}")


def _check_packed(query, key, value):
    for name, each in (("query", query), ("key", key), ("value", value)):
        if not isinstance(each, torch.Tensor):
            raise TypeError(f"{_OP}: {name} must be a Tensor; it is {type(each).__name__}")
        if each.is_nested:
            raise NotImplementedError(
                f"{_OP}: {name} is nested; scaled_dot_product_attention takes nested tensors"
            )
        if each.dim() != 3:
            raise ValueError(
                f"{_OP}: {name} has {each.dim()} dimensions; must have 3: rows of all sequences, "
                "heads, elements"
            )


def _check_offsets(name, offsets, query):
    if not isinstance(offsets, torch.Tensor):
        raise TypeError(f"{_OP}: {name} must be a Tensor; it is {type(offsets).__name__}")
    if offsets.dtype not in _INDICES:
        raise ValueError(f"{_OP}: {name} has dtype {offsets.dtype}; must be int32 or int64")
    if offsets.dim() != 1 or offsets.shape[0] == 0:
        raise ValueError(
            f"{_OP}: {name} has shape {tuple(offsets.shape)}; must be (sequences + 1,)"
        )
    if offsets.device.type != "cpu" and offsets.device != query.device:
        raise ValueError(
            f"{_OP}: {name} is on {offsets.device}; must be on the CPU or on query's, "
            f"{query.device}"
        )


@overridable
def varlen_attention(
    query,
    key,
    value,
    cu_seqlens_q,
    cu_seqlens_k=None,
    *,
    is_causal=False,
    causal=None,
    window=0,
    softcap=0.0,
    scale=None,
    dropout_p=0.0,
    enable_gqa=False,
    return_lse=False,
    seed=None,
    arithmetic="canonical",
):
    """scaled_dot_product_attention of each of several sequences by itself, bit for bit. They lie
    one behind the other in query (total, heads, elements), and so do those of key and value, which
    are read there; the result has query's rows.

    cu_seqlens_q: int32 or int64, (sequences + 1): sequence i has the rows from cu_seqlens_q[i] to
    cu_seqlens_q[i + 1]. It begins with 0. Rows behind the last sequence are not read, and give 0.
    cu_seqlens_k: the same of key and value; unless given, cu_seqlens_q. On a GPU the call waits for
    them; on the CPU they are there. Sequences may be empty.

    The options are those of scaled_dot_product_attention. FlashAttention's causal is
    causal="bottom_right". return_lse: (y, lse), lse (heads, total). What dropout_p drops of
    sequence i depends on the seed, i, and the places of head, query and key in the sequence: it is
    what scaled_dot_product_attention drops of the i-th of a batch.
    """
    _check_packed(query, key, value)
    _check_alike(_OP, query, key, value, enable_gqa)
    _check_offsets("cu_seqlens_q", cu_seqlens_q, query)
    if cu_seqlens_k is None:
        cu_seqlens_k = cu_seqlens_q
    _check_offsets("cu_seqlens_k", cu_seqlens_k, query)
    if cu_seqlens_k.shape != cu_seqlens_q.shape:
        raise ValueError(
            f"{_OP}: cu_seqlens_k has {cu_seqlens_k.shape[0]} elements; cu_seqlens_q has "
            f"{cu_seqlens_q.shape[0]}"
        )
    options = causal_number(_OP, is_causal, causal), window, scale, softcap
    options += dropout_p, _seed(_OP, dropout_p, seed), arithmetic_number(_OP, arithmetic)
    y, lse = _computed((query, key, value, cu_seqlens_q, cu_seqlens_k), *options)
    return (y, lse) if return_lse else y


def _computed(tensors, causal, window, scale, softcap, dropout_p, seed, arithmetic):
    y, lse, _max, _sum = run(
        VARLEN_ATTENTION,
        dict(zip(("q", "k", "v", "cu_q", "cu_k"), tensors, strict=True)),
        {"seed": seed},
        {"arithmetic": arithmetic},
        causal=causal,
        window=window,
        scale=0.0 if scale is None else float(scale) or _LEAST,
        softcap=float(softcap),
        dropout=float(dropout_p),
    )
    return y, lse


def _packed(op, name, each, rank):
    """(rows, heads, elements) of a nested tensor, without a copy."""
    if not (isinstance(each, torch.Tensor) and each.is_nested):
        kind = "a plain one" if isinstance(each, torch.Tensor) else type(each).__name__
        raise TypeError(f"{op}: {name} must be a nested Tensor, as others are; it is {kind}")
    if each.layout != torch.jagged:
        raise NotImplementedError(f"{op}: {name} is nested; must have layout=torch.jagged")
    if each.dim() not in (3, 4) or each.dim() != rank:
        allowed = rank if rank in (3, 4) else "3 or 4"
        raise ValueError(
            f"{op}: {name} is nested and has {each.dim()} dimensions; must have {allowed}"
        )
    if each._ragged_idx != rank - 2:
        raise ValueError(
            f"{op}: {name} is nested, with several lengths of dimension {each._ragged_idx}; must "
            f"be of {rank - 2}, the sequence's"
        )
    nested.require_no_holes(op, each)
    return each.values().unsqueeze(1) if rank == 3 else each.values().transpose(0, 1)


def of_nested(op, query, key, value, enable_gqa, return_lse, options):
    """Attention of the sequences of nested tensors, (batch, heads, sequence, elements) or without
    heads: a nested tensor with those of query. options: causal, window, scale, softcap, dropout_p,
    seed and the number of the arithmetic."""
    rank = query.dim() if isinstance(query, torch.Tensor) else 4
    packed = [
        _packed(op, name, each, rank)
        for name, each in (("query", query), ("key", key), ("value", value))
    ]
    if key.shape[:-1] != value.shape[:-1] or key.shape[0] != query.shape[0]:
        shapes = ", ".join(str(tuple(each.shape)) for each in (query, key, value))
        raise ValueError(
            f"{op}: query, key and value are nested, of shapes {shapes}; must be of one batch, and "
            "key and value of the same sequences"
        )
    _check_alike(op, *packed, enable_gqa)
    ends = query.offsets(), key.offsets()
    y, lse = _computed((*packed, *ends), *options)
    if rank == 3:
        y, lse = y.squeeze(1), lse.squeeze(0)
    else:
        y = y.transpose(0, 1)
    y = nested.with_parts_of(query, y)
    return (y, nested.with_parts_of(query, lse)) if return_lse else y
