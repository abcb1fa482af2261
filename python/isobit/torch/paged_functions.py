# SPDX-License-Identifier: Apache-2.0
"""Attention to keys and values that lie in blocks of a pool, as servers of language models keep
them: each sequence has the bits that it has alone, with its keys in a row."""

import torch

from isobit._attention import _LEAST
from isobit.torch.attending import ATTENTION, arithmetic_number, causal_number
from isobit.torch.functional import _seed, overridable, run

_OP = "paged_attention"
_INDICES = (torch.int32, torch.int64)


def _check_tensor(name, each, dims, what):
    if not isinstance(each, torch.Tensor):
        raise TypeError(f"{_OP}: {name} must be a Tensor; it is {type(each).__name__}")
    if each.dim() != dims:
        raise ValueError(f"{_OP}: {name} has {each.dim()} dimensions; must have {dims}: {what}")


def _indices(name, each, dims, what):
    _check_tensor(name, each, dims, what)
    if each.dtype not in _INDICES:
        raise ValueError(f"{_OP}: {name} has dtype {each.dtype}; must be int32 or int64")
    return each.to(torch.int64)


def _check_heads(query, key_cache, value_cache, heads, enable_gqa):
    if key_cache.shape[:3] != value_cache.shape[:3]:
        shapes = f"{tuple(key_cache.shape)} and {tuple(value_cache.shape)}"
        raise ValueError(
            f"{_OP}: key_cache and value_cache have shapes {shapes}; must have equally many "
            "blocks, keys of a block and heads"
        )
    kv_heads = key_cache.shape[2]
    if heads != kv_heads and not enable_gqa:
        raise ValueError(
            f"{_OP}: query and key_cache have {heads} and {kv_heads} heads; must have equally "
            "many, or enable_gqa=True"
        )


@overridable
def paged_attention(
    query,
    key_cache,
    value_cache,
    block_table,
    seqused_k,
    *,
    cu_seqlens_q=None,
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
    """scaled_dot_product_attention of query (batch, heads, queries, elements) to keys and values in
    blocks of a pool: key_cache and value_cache (blocks, keys of a block, heads, elements), read
    where they lie. Without gradients.

    block_table: int32 or int64, (batch, places): key j of a sequence is key j % b of block
    block_table[sequence, j // b], of b keys each. seqused_k: the same of (batch), how many keys a
    sequence has. Entries of block_table behind them are not read. cu_seqlens_q: queries are packed,
    (total, heads, elements), and sequence i has those from cu_seqlens_q[i] to cu_seqlens_q[i + 1].

    The options are those of scaled_dot_product_attention. FlashAttention's causal is
    causal="bottom_right". return_lse: (y, lse), lse with y's rows. What dropout_p drops of a
    sequence depends on the seed, its number, and the places of head, query and key in it: it is
    what scaled_dot_product_attention drops of the batch with that number.
    """
    is_packed = cu_seqlens_q is not None
    if is_packed:
        _check_tensor("query", query, 3, "rows of all sequences, heads, elements")
    else:
        _check_tensor("query", query, 4, "batch, heads, queries, elements")
    for name, each in (("key_cache", key_cache), ("value_cache", value_cache)):
        _check_tensor(name, each, 4, "blocks, keys of a block, heads, elements")
    _check_heads(query, key_cache, value_cache, query.shape[1], enable_gqa)
    behind = dict.fromkeys(("slopes", "key_begin", "key_end", "query_starts", "key_starts"))
    behind["key_end"] = _indices("seqused_k", seqused_k, 1, "batch")
    if is_packed:
        behind["query_starts"] = _indices("cu_seqlens_q", cu_seqlens_q, 1, "sequences + 1")
    behind["blocks"] = _indices("block_table", block_table, 2, "batch, places")
    given = dict.fromkeys(("q", "k", "v", "bias", "mask", "seed"))
    given["q"] = query.transpose(0, 1)[None] if is_packed else query
    given["k"], given["v"] = key_cache.transpose(1, 2), value_cache.transpose(1, 2)
    given["seed"] = _seed(_OP, dropout_p, seed)
    y, lse, _max, _sum = run(
        ATTENTION,
        given,
        behind,
        {"arithmetic": arithmetic_number(_OP, arithmetic)},
        causal=causal_number(_OP, is_causal, causal),
        window=window,
        scale=0.0 if scale is None else float(scale) or _LEAST,
        softcap=float(softcap),
        dropout=float(dropout_p),
    )
    if is_packed:
        y, lse = y[0].transpose(0, 1), lse[0]
    return (y, lse) if return_lse else y
