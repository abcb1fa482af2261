# SPDX-License-Identifier: Apache-2.0
"""SelfAttention: projections, rotary embedding, attention and the projection of its result; and
the keys and values that it keeps while a text grows."""

import math

import torch

from isobit import _arguments
from isobit.torch import attending, nested, recomputing
from isobit.torch.attention_functions import scaled_dot_product_attention
from isobit.torch.functional import _seed
from isobit.torch.product_modules import Linear
from isobit.torch.rotary import RotaryEmbedding, sequence_positions
from isobit.torch.varlen_functions import varlen_attention

_OP = "SelfAttention"


def _size(function, name, given, least):
    return _arguments.integer(function, name, given, least, 2**40, f"{least} to 2^40")


class KeyValueCache:
    """Keys and values of the tokens so far, (batch, kv_heads, length, head_dim), of one layer.
    Room grows by doubling; room for `capacity` tokens is there from the start."""

    def __init__(self, capacity=0):
        self.length = 0
        self._capacity = _size("KeyValueCache", "capacity", capacity, 0)
        self._kept = None

    def append(self, k, v):
        """All keys and values, those given last."""
        joined = self._behind(k, v)
        self.length += k.shape[2]
        return joined

    def _behind(self, k, v):
        """The same; the cache does not count them yet."""
        if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad):
            raise RuntimeError("KeyValueCache: keeps no gradients; call it under torch.no_grad()")
        end = self.length + k.shape[2]
        if self._kept is None or self._kept[0].shape[2] < end:
            self._grow(end, (k, v))
        for kept, new in zip(self._kept, (k, v), strict=True):
            shape, of_new = (*kept.shape[:2], kept.shape[3]), (*new.shape[:2], new.shape[3])
            if shape != of_new or kept.dtype != new.dtype:
                raise ValueError(
                    f"KeyValueCache: has (batch, heads, elements) of {shape} in {kept.dtype}; was "
                    f"given {of_new} in {new.dtype}"
                )
            kept[:, :, self.length : end] = new
        return tuple(each[:, :, :end] for each in self._kept)

    def _grow(self, end, like):
        room = max(end, self._capacity)
        if self._kept is not None:
            room = max(room, 2 * self._kept[0].shape[2])
            like = self._kept
        with torch.inference_mode(False):  # whose tensors nothing else may write to
            grown = [each.new_empty((*each.shape[:2], room, each.shape[3])) for each in like]
        if self._kept is not None:
            for new, old in zip(grown, self._kept, strict=True):
                new[:, :, : self.length] = old[:, :, : self.length]
        self._kept = grown

    def truncate(self, length):
        """Forgets all but the first tokens."""
        allowed = f"0 to {self.length}"
        self.length = _arguments.integer("KeyValueCache", "length", length, 0, self.length, allowed)


class SelfAttention(torch.nn.Module):
    """Attention of a sequence to itself: o_proj(attention(q_proj(x), k_proj(x), v_proj(x))), by
    isobit.torch.linear and scaled_dot_product_attention. The parameters have the names of
    transformers' LlamaAttention.

    kv_heads: heads of k and v, each of which serves heads / kv_heads of q. head_dim: dim / heads
    where it is None. bias: of the first three projections; out_bias: of the last, as bias where it
    is None. rotary: a RotaryEmbedding of layout "bshd", which turns q and k; layers may share one.
    causal, window, scale and softcap: of scaled_dot_product_attention. dropout: of weights, in
    training. arithmetic: of the projections and of attention, as scaled_dot_product_attention has
    it. checkpoint: nothing between x and the result is kept for backward, which computes it
    again, with the same bits.
    """

    arithmetic = "canonical"

    def __init__(
        self,
        dim,
        heads,
        kv_heads=None,
        head_dim=None,
        *,
        bias=True,
        out_bias=None,
        causal=False,
        rotary=None,
        dropout=0.0,
        window=0,
        scale=None,
        softcap=0.0,
        arithmetic="canonical",
        checkpoint=False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        for name, value in (("dim", dim), ("heads", heads), ("kv_heads", kv_heads)):
            _size(_OP, name, value, 1)
        if heads % kv_heads:
            raise ValueError(f"{_OP}: heads is {heads}; must be a multiple of kv_heads, {kv_heads}")
        if head_dim is None and dim % heads:
            raise ValueError(f"{_OP}: dim is {dim}; must be a multiple of heads, {heads}")
        if head_dim is not None:
            _size(_OP, "head_dim", head_dim, 1)
        if not isinstance(causal, bool):
            raise TypeError(f"{_OP}: causal must be True or False; it is {causal!r}")
        _size(_OP, "window", window, 0)
        for name, value, is_allowed, needed in (
            ("dropout", dropout, lambda p: 0 <= p < 1, "at least 0 and less than 1"),
            ("scale", 1 if scale is None else scale, math.isfinite, "None or a finite number"),
            ("softcap", softcap, lambda cap: 0 <= cap < math.inf, "a finite number, 0 or more"),
        ):
            _arguments.number(_OP, name, value, is_allowed, needed)
        attending.arithmetic_number(_OP, arithmetic)
        if rotary is not None and not isinstance(rotary, RotaryEmbedding):
            kind = type(rotary).__name__
            raise TypeError(f"{_OP}: rotary must be None or a RotaryEmbedding; it is {kind}")
        if rotary is not None and rotary.layout != "bshd":
            raise ValueError(f"{_OP}: rotary has layout {rotary.layout!r}; must be 'bshd'")
        self.dim, self.heads, self.kv_heads = dim, heads, kv_heads
        self.head_dim = dim // heads if head_dim is None else head_dim
        self.causal, self.window, self.scale, self.softcap = causal, window, scale, softcap
        self.dropout, self.checkpoint, self.rotary = dropout, checkpoint, rotary
        self.arithmetic = arithmetic
        made = {"device": device, "dtype": dtype, "arithmetic": arithmetic}
        for name, count in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)):
            setattr(self, name, Linear(dim, count * self.head_dim, bias, **made))
        out_bias = bias if out_bias is None else out_bias
        self.o_proj = Linear(heads * self.head_dim, dim, out_bias, **made)

    def _check(self, x, position_ids, cache):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{_OP}: x must be a Tensor; it is {type(x).__name__}")
        if x.is_nested and (x.layout != torch.jagged or x.dim() != 3 or x._ragged_idx != 1):
            raise NotImplementedError(
                f"{_OP}: x is nested; must have layout=torch.jagged, as (batch, seq, dim)"
            )
        if x.dim() not in (2, 3):
            raise ValueError(f"{_OP}: x has {x.dim()} dimensions; must have 2 or 3")
        if position_ids is not None and self.rotary is None:
            raise ValueError(f"{_OP}: position_ids is given; needs rotary")
        if cache is not None and not isinstance(cache, KeyValueCache):
            kind = type(cache).__name__
            raise TypeError(f"{_OP}: cache must be None or a KeyValueCache; it is {kind}")
        if cache is not None and not self.causal:
            raise ValueError(f"{_OP}: cache is given; needs causal=True")

    def _attended(self, x, attn_mask, position_ids, cache, seed):
        q, k, v = (
            torch.unflatten(project(x), -1, (-1, self.head_dim))
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.rotary is not None:
            before = 0 if cache is None or position_ids is not None else cache.length
            q, k = self.rotary(q, k, position_ids=position_ids, offset=before)
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        if cache is not None:
            k, v = cache._behind(k, v)
        y = scaled_dot_product_attention(
            *(q, k, v, attn_mask),
            dropout_p=self.dropout if self.training else 0.0,
            scale=self.scale,
            enable_gqa=True,
            causal="bottom_right" if self.causal else "no",
            window=self.window,
            softcap=self.softcap,
            seed=seed,
            arithmetic=self.arithmetic,
        )
        y = self.o_proj(y.transpose(1, 2).flatten(-2))
        if cache is not None:  # now that nothing can fail any more
            cache.length += x.shape[1]
        return y

    def _attended_nested(self, x, position_ids, seed):
        rows, ends = x.values(), x.offsets()
        q, k, v = (
            torch.unflatten(project(rows), -1, (-1, self.head_dim))
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.rotary is not None:
            places = sequence_positions(_OP, ends, rows.shape[0])
            places = places if position_ids is None else position_ids.values()
            q, k = self.rotary(q.unsqueeze(0), k.unsqueeze(0), position_ids=places.unsqueeze(0))
            q, k = q.squeeze(0), k.squeeze(0)
        y = varlen_attention(
            *(q, k, v, ends),
            scale=self.scale,
            enable_gqa=True,
            causal="bottom_right" if self.causal else "no",
            window=self.window,
            softcap=self.softcap,
            dropout_p=self.dropout if self.training else 0.0,
            seed=seed,
            arithmetic=self.arithmetic,
        )
        return nested.with_parts_of(x, self.o_proj(y.flatten(-2)))

    def _of_nested(self, x, attn_mask, position_ids, cache, seed):
        nested.require_no_holes(_OP, x)
        for name, value in (("attn_mask", attn_mask), ("cache", cache)):
            if value is not None:
                raise NotImplementedError(f"{_OP}: {name} and x, which is nested, are given")
        if position_ids is not None and position_ids.shape != x.shape[:-1]:
            shapes = f"{tuple(position_ids.shape)}; x, which is nested, has {tuple(x.shape)}"
            raise ValueError(f"{_OP}: position_ids has shape {shapes}")
        return recomputing.call(self.checkpoint, self._attended_nested, x, position_ids, seed)

    def forward(self, x, *, attn_mask=None, position_ids=None, cache=None, seed=None):
        """Of x (batch, seq, dim) or (seq, dim); or a nested x of the jagged layout, whose sequences
        have the bits that they have alone, without attn_mask and cache.

        attn_mask: as of scaled_dot_product_attention, for all keys, and beside causal. cache: a
        KeyValueCache, whose tokens come before those of x; needs causal=True, and no gradients.
        position_ids: those by which rotary turns, (batch, seq) or (seq), nested as x is; else they
        count on from the cache's. seed: of dropout.
        """
        self._check(x, position_ids, cache)
        seed = _seed(_OP, self.dropout if self.training else 0.0, seed)
        if x.is_nested:
            return self._of_nested(x, attn_mask, position_ids, cache, seed)
        batched = x.dim() == 3
        x = x if batched else x.unsqueeze(0)
        given = (x, attn_mask, position_ids, cache, seed)
        if self.checkpoint and cache is not None and torch.is_grad_enabled():
            raise ValueError(f"{_OP}: checkpoint and cache; a cache goes without gradients")
        y = recomputing.call(self.checkpoint, self._attended, *given)
        return y if batched else y.squeeze(0)

    def extra_repr(self):
        words = f"dim={self.dim}, heads={self.heads}, kv_heads={self.kv_heads}"
        words += f", head_dim={self.head_dim}, causal={self.causal}"
        usual = {"dropout": 0.0, "window": 0, "scale": None, "softcap": 0.0}
        usual |= {"arithmetic": "canonical", "checkpoint": False}
        given = ((name, getattr(self, name)) for name in usual)
        return words + "".join(
            f", {name}={value!r}" for name, value in given if value != usual[name]
        )
