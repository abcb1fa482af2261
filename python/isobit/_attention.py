# SPDX-License-Identifier: Apache-2.0
"""Attention of isobit.numpy."""

import numpy as np

from isobit import _arguments, _arrays, c_abi
from isobit._calls import FLOATS, Call, context
from isobit._products import ARITHMETICS

_OP = "scaled_dot_product_attention"
_LEAST = 2.0**-1000  # of a scale: 0 stands for the usual one, and this is 0 in all but name
CAUSALS = ("no", "top_left", "bottom_right")


def scaled_dot_product_attention(
    query,
    key,
    value,
    attn_mask=None,
    *,
    causal="no",
    scale=None,
    window=0,
    softcap=0.0,
    return_lse=False,
    alibi_slopes=None,
    key_begin=None,
    key_end=None,
    cu_seqlens_q=None,
    cu_seqlens_k=None,
    block_table=None,
    dropout_p=0.0,
    seed=None,
    arithmetic="canonical",
):
    """softmax(query key' scale + bias) value, of arrays (batch, heads, sequence, elements) of any
    strides; heads of query may be a multiple of those of key and value.

    attn_mask: broadcast to (batch, heads, queries, keys), of bool, true where a key is allowed, or
    of query's dtype, added to scores. causal: "no", "top_left" or "bottom_right", where the last
    query sees all keys. scale: unless given 1 / sqrt(elements). window: keys less than this far
    from the query's own position; 0: all. softcap: scores become softcap tanh(score / softcap).
    return_lse: (y, lse), with the logarithm of the sum of e^score of each query. alibi_slopes:
    float32 (float64 beside float64) of (heads) or (batch, heads) of query; to scores
    -slope abs(i + keys - queries - j) is added, of query i and key j. key_begin, key_end: int64 of
    (batch); a sequence has the keys from key_begin to before key_end, and the bits that it has
    alone. What lies before and behind is never read.

    cu_seqlens_q, cu_seqlens_k: int64 of (sequences + 1), from 0 on; in a batch of 1 sequence i has
    the queries from cu_seqlens_q[i] to before cu_seqlens_q[i + 1] and keys likewise, and the bits
    that it has alone. Queries behind the last give 0. block_table: int64 of (sequences, places);
    key and value are (blocks, heads, keys of a block, elements), key j of sequence i is in block
    block_table[i, j // keys of a block], and key_end says how many keys each sequence has.

    dropout_p: a weight is dropped with this probability, and the others are divided by
    1 - dropout_p. What is dropped depends on the seed and the places of sequence, head, query and
    key; None draws a seed. arithmetic: "canonical", or "tensor", AMX's, of bfloat16 alone; other
    types are refused.
    """
    if causal not in CAUSALS:
        allowed = ", ".join(map(repr, CAUSALS))
        raise ValueError(f"{_OP}: causal is {causal!r}; allowed: {allowed}")
    if arithmetic not in ARITHMETICS:
        allowed = ", ".join(map(repr, ARITHMETICS))
        raise ValueError(f"{_OP}: arithmetic is {arithmetic!r}; allowed: {allowed}")
    call = Call(_OP, "query", query, FLOATS)
    q = call.x
    k, v = (
        _arrays.checked(_OP, name, given, (call.dtype,), call.like)
        for name, given in (("key", key), ("value", value))
    )
    for name, array in (("query", q), ("key", k), ("value", v)):
        if array.ndim != 4:
            raise ValueError(
                f"{_OP}: {name} has {array.ndim} dimensions; must have 4: batch, heads, sequence, "
                "elements"
            )
    tensors = {"q": _arrays.strided(q), "k": _arrays.strided(k), "v": _arrays.strided(v)}
    sequences = q.shape[0]
    for name, argument, given in (
        ("cu_seqlens_q", "query_starts", cu_seqlens_q),
        ("cu_seqlens_k", "key_starts", cu_seqlens_k),
        ("block_table", "blocks", block_table),
    ):
        if given is not None:
            array = _arrays.checked(_OP, name, given, ("int64",), call.like)
            dims = 2 if argument == "blocks" else 1
            if array.ndim != dims:
                raise ValueError(f"{_OP}: {name} has {array.ndim} dimensions; must have {dims}")
            tensors[argument] = _arrays.strided(array)
            if argument == "query_starts":
                sequences = array.shape[0] - 1
    if attn_mask is not None:
        mask = _arrays.checked(_OP, "attn_mask", attn_mask, ("bool", call.dtype), call.like)
        shape = (*q.shape[:3], k.shape[2])
        try:
            mask = np.broadcast_to(mask, shape)
        except ValueError:
            raise ValueError(
                f"{_OP}: attn_mask has shape {mask.shape}, which does not broadcast to {shape}"
            ) from None
        tensors["mask" if mask.dtype == bool else "bias"] = _arrays.strided(mask)
    real = "float64" if call.dtype == "float64" else "float32"
    if alibi_slopes is not None:
        slopes = _arrays.checked(_OP, "alibi_slopes", alibi_slopes, (real,), call.like)
        if slopes.shape not in (q.shape[1:2], q.shape[:2]):
            raise ValueError(
                f"{_OP}: alibi_slopes has shape {slopes.shape}; must be {q.shape[1:2]} or "
                f"{q.shape[:2]}"
            )
        tensors["slopes"] = _arrays.strided(np.broadcast_to(slopes, q.shape[:2]))
    for name, given in (("key_begin", key_begin), ("key_end", key_end)):
        if given is not None:
            array = _arrays.checked(_OP, name, given, ("int64",), call.like)
            if array.shape != (sequences,):
                raise ValueError(
                    f"{_OP}: {name} has shape {array.shape}; must be that of the batch, "
                    f"{(sequences,)}"
                )
            tensors[name] = _arrays.strided(array)
    y = call.empty((*q.shape[:3], v.shape[3]), call.dtype)
    tensors["y"] = _arrays.strided(y)
    lse = None
    if return_lse:
        lse = call.empty(q.shape[:3], real)
        tensors["lse"] = _arrays.strided(lse)
    options = {
        "causal": causal,
        "window": _arguments.whole(_OP, "window", window),
        "scale": 0.0 if scale is None else _arguments.real(_OP, "scale", scale) or _LEAST,
        "softcap": _arguments.real(_OP, "softcap", softcap),
        "dropout": _arguments.real(_OP, "dropout_p", dropout_p),
        "dropout_seed": _arguments.seed(_OP, seed),
        "arithmetic": arithmetic,
    }
    c_abi.call("attention", "fwd", context(), **tensors, **options)
    return (call.result(y), call.result(lse)) if return_lse else call.result(y)
