# SPDX-License-Identifier: Apache-2.0
"""Attention: torch.nn.functional.scaled_dot_product_attention, with the same bits for a query
whatever stands beside it."""

from contextlib import nullcontext

import torch
from torch.autograd import forward_ad

from isobit._attention import _LEAST
from isobit.torch.attending import (
    ATTENTION,
    arithmetic_number,
    autocasts,
    bias_of_slopes,
    causal_number,
    real,
)
from isobit.torch.functional import _seed, overridable, run
from isobit.torch.records import NARROW
from isobit.torch.varlen_functions import of_nested

_OP = "scaled_dot_product_attention"


def _check(query, key, value, attn_mask):
    for name, each in (("query", query), ("key", key), ("value", value)):
        if not isinstance(each, torch.Tensor):
            raise TypeError(f"{_OP}: {name} must be a Tensor; it is {type(each).__name__}")
        if each.dim() < 2:
            raise ValueError(f"{_OP}: {name} has {each.dim()} dimensions; must have 2 or more")
        if each.dtype != query.dtype and not autocasts(query):
            raise ValueError(f"{_OP}: {name} has dtype {each.dtype}; query has {query.dtype}")
    if attn_mask is None:
        return
    if not isinstance(attn_mask, torch.Tensor):
        raise TypeError(f"{_OP}: attn_mask must be a Tensor; it is {type(attn_mask).__name__}")
    if attn_mask.dtype not in (torch.bool, torch.float32, query.dtype) and not autocasts(query):
        raise ValueError(
            f"{_OP}: attn_mask has dtype {attn_mask.dtype}; must be bool, float32 or query's, "
            f"{query.dtype}"
        )


def computed_in(query):
    """The type that products take: autocast's, where that is on."""
    if autocasts(query) and query.dtype != torch.float64:
        return torch.get_autocast_dtype(query.device.type)
    return query.dtype


def narrowed(bias, dtype):
    """A mask beside 16 bits: what is finite stays so, and does not come to mean that a key is not
    there."""
    if bias.dtype == dtype or dtype not in NARROW:
        return bias.to(dtype)
    most, bias = torch.finfo(dtype).max, bias.float()
    return torch.where(bias.isinf(), bias, bias.clamp(-most, most)).to(dtype)


def _expanded(name, each, shape):
    try:
        return each.expand(shape)
    except RuntimeError:
        raise ValueError(
            f"{_OP}: {name} has shape {tuple(each.shape)}, which does not broadcast to {shape}"
        ) from None


def _heads(each, heads, batch):
    """(batch, heads, sequence, elements), without a copy where strides allow it."""
    return each.expand(*batch, heads, *each.shape[-2:]).flatten(0, -4)


def _lies_ready(q, k, v, enable_gqa):
    """Whether the operator takes them as they are."""
    if not q.ndim == k.ndim == v.ndim == 4:
        return False
    (batch, heads), (kv_batch, kv_heads) = q.shape[:2], k.shape[:2]
    if kv_batch != batch or v.shape[:2] != k.shape[:2]:
        return False
    return kv_heads == heads or (enable_gqa and kv_heads > 0 and heads % kv_heads == 0)


def _broadcast(query, key, value, enable_gqa):
    """All three as (batch, heads, sequence, elements); which batch that is, and query's heads."""
    if _lies_ready(query, key, value, enable_gqa):
        return (query, key, value), query.shape[:1], query.shape[1]
    rank = max(query.dim(), key.dim(), value.dim())
    tensors = [each[(None,) * max(0, 3 - each.dim())] for each in (query, key, value)]
    tensors = [each[(None,) * (max(rank, 4) - each.dim())] for each in tensors]
    q, k, v = tensors
    heads, kv_heads, of_v = (each.shape[-3] for each in tensors)
    if enable_gqa and any(each == 0 or heads % each != 0 for each in (kv_heads, of_v)):
        raise ValueError(
            f"{_OP}: query has {heads} heads; with enable_gqa=True they must be a multiple of "
            f"key's {kv_heads} and of value's {of_v}"
        )
    if enable_gqa and kv_heads != of_v:
        k, v = (each.repeat_interleave(heads // each.shape[-3], -3) for each in (k, v))
        kv_heads = of_v = heads
    if not enable_gqa:
        try:
            (heads,) = torch.broadcast_shapes((heads,), (kv_heads,), (of_v,))
        except RuntimeError:
            raise ValueError(
                f"{_OP}: query, key and value have {heads}, {kv_heads} and {of_v} heads; must have "
                "equally many, or enable_gqa=True"
            ) from None
        kv_heads = heads
    try:
        batch = torch.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
    except RuntimeError:
        shapes = ", ".join(str(tuple(each.shape)) for each in (query, key, value))
        raise ValueError(
            f"{_OP}: query, key and value have shapes {shapes}, whose batches do not broadcast"
        ) from None
    q, k, v = _heads(q, heads, batch), _heads(k, kv_heads, batch), _heads(v, kv_heads, batch)
    return (q, k, v), batch, heads


def _check_slopes(slopes, query, attn_mask):
    if not isinstance(slopes, torch.Tensor):
        raise TypeError(f"{_OP}: alibi_slopes must be a Tensor; it is {type(slopes).__name__}")
    if slopes.device != query.device:
        raise ValueError(f"{_OP}: alibi_slopes is on {slopes.device}; query is on {query.device}")
    wide = (torch.float64,) if query.dtype == torch.float64 else ()
    if slopes.dtype not in (torch.float32, *wide):
        allowed = "float32 or float64" if wide else "float32"
        raise ValueError(f"{_OP}: alibi_slopes has dtype {slopes.dtype}; must be {allowed}")
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        raise ValueError(
            f"{_OP}: attn_mask has dtype {attn_mask.dtype}; must be bool beside alibi_slopes"
        )


def _slopes_of(slopes, batch, heads):
    """(batch, heads), of which what repeats is there once."""
    if tuple(slopes.shape) not in ((heads,), (*batch, heads)):
        allowed = dict.fromkeys((str((heads,)), str((*batch, heads))))
        raise ValueError(
            f"{_OP}: alibi_slopes has shape {tuple(slopes.shape)}; must be {' or '.join(allowed)}"
        )
    return slopes.expand(*batch, heads).flatten(0, -2)


def _place_of(name, given, query, batch):
    """One end of the keys of each sequence, as the operator takes it."""
    if given is None:
        return None
    if not isinstance(given, torch.Tensor):
        raise TypeError(f"{_OP}: {name} must be a Tensor; it is {type(given).__name__}")
    if given.device != query.device:
        raise ValueError(f"{_OP}: {name} is on {given.device}; query is on {query.device}")
    if given.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{_OP}: {name} has dtype {given.dtype}; must be int64 or int32")
    if tuple(given.shape) != tuple(batch):
        raise ValueError(
            f"{_OP}: {name} has shape {tuple(given.shape)}; must be that of the batch, "
            f"{tuple(batch)}"
        )
    return given.reshape(-1).to(torch.int64)


def _has_derivative(tensor):
    """Whether one by it may be asked for."""
    if torch.is_grad_enabled() and tensor.requires_grad:
        return True
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def _widened(tensors):
    """In the type of the sums, rounded as autocast would before. Attention of 16 bits computes what
    attention of the same numbers in float32 does, and rounds it."""
    (q, *_), types = tensors, [each.dtype for each in tensors]
    if autocasts(q):
        narrow = torch.get_autocast_dtype(q.device.type)
        types = [each if each == torch.float64 else narrow for each in types]
    wide = [each.to(dtype).to(real(dtype)) for each, dtype in zip(tensors, types, strict=True)]
    return types[0], wide


@overridable
def scaled_dot_product_attention(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    scale=None,
    enable_gqa=False,
    *,
    causal=None,
    window=0,
    softcap=0.0,
    return_lse=False,
    seed=None,
    alibi_slopes=None,
    key_begin=None,
    key_end=None,
    arithmetic="canonical",
):
    """torch.nn.functional.scaled_dot_product_attention, and more.

    causal: "top_left", as is_causal, or "bottom_right", where the last query sees all keys.
    window: keys less than this far from the query's own position; 0: all. softcap: scores become
    softcap tanh(score / softcap). return_lse: (y, lse), lse the logarithm of the sum of e^score of
    each query, with a gradient of its own. seed: what is dropped depends on it and on the place of
    a weight alone; where it is None, PyTorch's generator for the CPU draws one. alibi_slopes:
    float32 of (heads) or (batch, heads) of query; to scores -slope abs(i + keys - queries - j) is
    added, of query i and key j. Slopes that require a gradient are made a bias, which takes a
    float32 number for each of heads, queries and keys.

    key_begin, key_end: int64 of the batch; of all of key a sequence has those from key_begin to
    before key_end. What lies before and behind is never read, and the bits are those of the
    sequence alone. Positions, of causal, window and alibi_slopes, are counted in all of key. On a
    GPU what is no such range is taken for the nearest that is; on the CPU it is an error.

    arithmetic: "canonical", the same bits everywhere, or "tensor", those of a GPU's tensor cores,
    of float16 and bfloat16 alone, and so are those of its gradients; or on the CPU, of bfloat16
    alone, those of AMX, beside canonical gradients.

    A key that is not allowed is not there, whatever stands in it; a query without keys gives 0. A
    query alone has the bits that it has among others, and beside other sequences, paddings and
    lengths. A float32 attn_mask beside 16 bits is rounded to these. Sequences of nested tensors are
    those of varlen_attention.
    """
    number = arithmetic_number(_OP, arithmetic)
    if any(isinstance(each, torch.Tensor) and each.is_nested for each in (query, key, value)):
        given = {
            "attn_mask": attn_mask,
            "alibi_slopes": alibi_slopes,
            "key_begin": key_begin,
            "key_end": key_end,
        }
        for name, each in given.items():
            if each is not None:
                raise NotImplementedError(f"{_OP}: {name} is given; nested tensors go without")
        options = causal_number(_OP, is_causal, causal), window, scale, softcap
        options += dropout_p, _seed(_OP, dropout_p, seed), number
        return of_nested(_OP, query, key, value, enable_gqa, return_lse, options)
    _check(query, key, value, attn_mask)
    if alibi_slopes is not None:
        _check_slopes(alibi_slopes, query, attn_mask)
    code = causal_number(_OP, is_causal, causal)
    if attn_mask is not None and is_causal:
        raise RuntimeError(f"{_OP}: attn_mask and is_causal are given; one of them may be")
    (q, k, v), batch, heads = _broadcast(query, key, value, enable_gqa)
    bias = mask = None
    if attn_mask is not None:
        shape = (*batch, heads, q.shape[-2], k.shape[-2])
        whole = _expanded("attn_mask", attn_mask, shape).flatten(0, -4)
        is_bool = attn_mask.dtype == torch.bool
        bias, mask = (None, whole) if is_bool else (narrowed(whole, computed_in(q)), None)
    slopes = None
    dtype, by_bias = q.dtype, False
    if alibi_slopes is not None:
        slopes = _slopes_of(alibi_slopes, batch, heads)
        if by_bias := _has_derivative(alibi_slopes):
            dtype, (q, k, v) = _widened((q, k, v))
            bias = bias_of_slopes(alibi_slopes, q.shape[-2], k.shape[-2], q.dtype)
            bias, slopes = _heads(bias, heads, batch), None
        else:
            slopes = slopes.to(real(computed_in(q)))
    behind = {"slopes": slopes}
    for name, each in (("key_begin", key_begin), ("key_end", key_end)):
        behind[name] = _place_of(name, each, query, batch)
    behind |= dict.fromkeys(("query_starts", "key_starts", "blocks"))
    given = {"q": q, "k": k, "v": v, "bias": bias, "mask": mask}
    given["seed"] = _seed(_OP, dropout_p, seed)
    with torch.autocast(q.device.type, enabled=False) if by_bias else nullcontext():
        y, lse, _max, _sum = run(
            ATTENTION,
            given,
            behind,
            {"arithmetic": number},
            causal=code,
            window=window,
            scale=0.0 if scale is None else float(scale) or _LEAST,
            softcap=float(softcap),
            dropout=float(dropout_p),
        )
    y = y.to(dtype) if by_bias else y
    rank = max(query.dim(), key.dim(), value.dim())
    front = (*batch, heads)
    front = front[len(front) + 2 - rank :]  # without dimensions that stood in front of none
    if y.shape[:-2] != front:
        y, lse = (each.reshape(*front, *each.shape[2:]) for each in (y, lse))
    return (y, lse) if return_lse else y
