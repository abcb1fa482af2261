# SPDX-License-Identifier: Apache-2.0
"""MultiheadAttention, torch.nn's with Isobit's bits."""

import math
from functools import partial, reduce

import torch
from torch.nn.functional import pad

from isobit.torch import (
    activation_functions,
    attending,
    attention_functions,
    product_functions,
    recomputing,
    softmax_functions,
)
from isobit.torch.attention_functions import scaled_dot_product_attention
from isobit.torch.functional import _seed

_OP = "MultiheadAttention"


def weights(q, k, *, bias=None, allowed=None, scale=None, softcap=0.0, dropout=0.0, seed=None):
    """softmax(score), of q and k with equally many heads: 0 where a key is not there, and where
    scaled_dot_product_attention with this seed drops one. Scores are products of ours, and of 16
    bits not rounded to these."""
    dtype = attention_functions.computed_in(q)
    q, k = q.to(dtype), k.to(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    out_dtype = None if dtype == wide else wide
    scores = product_functions.matmul(q, k.mT, out_dtype=out_dtype)
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = activation_functions.tanh(scores / softcap) * softcap
    if bias is not None:
        scores = scores + attention_functions.narrowed(bias, dtype)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    # A score beyond those of which attention has an exponent, to base 2, is that of no key.
    there = scores * math.log2(math.e) != -torch.inf
    found = softmax_functions.softmax(scores, -1, mask=there)
    return found * attending.kept(q, k, seed, dropout) if dropout > 0 else found


def _check_inputs(query, key, value, embed_dim, kdim, vdim):
    sizes = {"query": embed_dim, "key": kdim, "value": vdim}
    for (name, size), each in zip(sizes.items(), (query, key, value), strict=True):
        if not isinstance(each, torch.Tensor):
            raise TypeError(f"{_OP}: {name} must be a Tensor; it is {type(each).__name__}")
        if each.is_nested:
            raise NotImplementedError(f"{_OP}: {name} is nested; pad it, or call for each sequence")
        if query.dim() not in (2, 3) or each.dim() != query.dim():
            allowed = query.dim() if query.dim() in (2, 3) else "2 or 3"
            raise ValueError(f"{_OP}: {name} has {each.dim()} dimensions; must have {allowed}")
        if each.shape[-1] != size:
            raise ValueError(f"{_OP}: {name} has rows of {each.shape[-1]} elements; must be {size}")
    if key.shape[:-1] != value.shape[:-1]:
        shapes = f"{tuple(key.shape)} and {tuple(value.shape)}"
        raise ValueError(f"{_OP}: key and value have shapes {shapes}; must have equally many rows")


def _check_mask(name, mask, shapes):
    if not isinstance(mask, torch.Tensor):
        raise TypeError(f"{_OP}: {name} must be a Tensor; it is {type(mask).__name__}")
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(f"{_OP}: {name} has dtype {mask.dtype}; must be bool or floating")
    if tuple(mask.shape) not in shapes:
        allowed = " or ".join(map(str, shapes))
        raise ValueError(f"{_OP}: {name} has shape {tuple(mask.shape)}; must be {allowed}")


def _added(mask, dtype):
    """What a mask adds to scores; True of a bool one says that a key is not allowed."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -torch.inf)


def _projected(module, query, key, value):
    """By one product where it is of one tensor."""
    linear = partial(product_functions.linear, arithmetic=module._chosen_arithmetic)
    packed, bias, size = module.in_proj_weight, module.in_proj_bias, module.embed_dim
    if packed is not None and query is key and key is value:
        return linear(query, packed, bias).split(size, -1)
    biases = (None,) * 3 if bias is None else bias.split(size)
    if packed is None:
        three = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    else:
        three = packed.split(size)
    q = linear(query, three[0], biases[0])
    if packed is not None and key is value:
        both = linear(key, packed[size:], None if bias is None else bias[size:])
        return q, *both.split(size, -1)
    return q, linear(key, three[1], biases[1]), linear(value, three[2], biases[2])


def _heads(module, x, batch_first):
    """(batch, heads, sequence, elements), without a copy."""
    # Dynamo does not trace the tensor's method of that name in a converted model.
    x = torch.unflatten(x, -1, (module.num_heads, module.head_dim))
    return x.transpose(1, 2) if batch_first else x.permute(1, 2, 0, 3)


def _appended(module, x, bias):
    """Behind the keys or values of each head: the bias, and zeros."""
    row = (x.shape[0], module.num_heads, 1, module.head_dim)
    parts = [x]
    if bias is not None:
        parts.append(_heads(module, bias, False).to(x.dtype).expand(row))
    if module.add_zero_attn:
        parts.append(x.new_zeros(row))
    return torch.cat(parts, 2) if len(parts) > 1 else x


def _masks(module, key_padding_mask, attn_mask, sizes, extra, dtype):
    """(bias, allowed), of which one may be there, for the heads of a batch."""
    batch, queries, keys = sizes
    given = []
    if attn_mask is not None:
        each = (batch * module.num_heads, queries, keys)
        _check_mask("attn_mask", attn_mask, [each[1:], each])
        if attn_mask.dim() == 3:
            attn_mask = torch.unflatten(attn_mask, 0, (batch, module.num_heads))
        given.append(attn_mask)
    if key_padding_mask is not None:
        given.append(key_padding_mask[:, None, None])
    if extra:
        given = [pad(each, (0, extra)) for each in given]
    if not given:
        return None, None
    if all(each.dtype == torch.bool for each in given):
        return None, ~reduce(torch.logical_or, given)
    return reduce(torch.add, (_added(each, dtype) for each in given)), None


class MultiheadAttention(torch.nn.MultiheadAttention):
    """torch.nn.MultiheadAttention: its linear layers are isobit.torch.linear, and its attention is
    isobit.torch.scaled_dot_product_attention. A query without keys gives 0, and weights of 0.

    PyTorch's fast paths, which compute the module or a whole encoder layer in one function of their
    own, are never taken. Nested tensors, which PyTorch knows there alone, are refused.

    arithmetic: of both, as of isobit.torch.scaled_dot_product_attention; weights are canonical.
    checkpoint: for backward it keeps query, key and value alone, and computes the rest again, with
    the same bits."""

    arithmetic = "canonical"
    checkpoint = False

    def __init__(
        self,
        embed_dim,
        num_heads,
        dropout=0.0,
        bias=True,
        add_bias_kv=False,
        add_zero_attn=False,
        kdim=None,
        vdim=None,
        batch_first=False,
        device=None,
        dtype=None,
        *,
        arithmetic="canonical",
        checkpoint=False,
    ):
        attending.arithmetic_number(_OP, arithmetic)
        super().__init__(
            *(embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn),
            *(kdim, vdim, batch_first, device, dtype),
        )
        self.arithmetic, self.checkpoint = arithmetic, checkpoint

    def extra_repr(self):
        named = [f"arithmetic={self.arithmetic!r}"] if self.arithmetic != "canonical" else []
        return ", ".join(named + ["checkpoint=True"] * self.checkpoint)

    @property
    def _chosen_arithmetic(self):
        return self.arithmetic

    @property
    def _qkv_same_embed_dim(self):
        # After __init__, torch.nn.TransformerEncoderLayer alone asks, and computes without this
        # module where it is told yes.
        return vars(self)["_qkv_same_embed_dim"] and "out_proj" not in self._modules

    @_qkv_same_embed_dim.setter
    def _qkv_same_embed_dim(self, value):
        vars(self)["_qkv_same_embed_dim"] = value

    def _reset_parameters(self):
        init = torch.nn.init
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if (weight := getattr(self, name)) is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for each in (self.bias_k, self.bias_v):
            if each is not None:
                init.xavier_normal_(each)

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        """torch.nn.MultiheadAttention.forward: (y, weights or None).

        weights: softmax(score), with dropout as y has it, and averaged as heads stand in order.
        is_causal says that attn_mask is the causal one; where weights, a padding or appended keys
        are there, attn_mask is what counts.
        """
        _check_inputs(query, key, value, self.embed_dim, self.kdim, self.vdim)
        if is_causal and attn_mask is None:
            raise RuntimeError(f"{_OP}: is_causal is given without attn_mask, of which it tells")
        batched, batch_first = query.dim() == 3, self.batch_first or query.dim() == 2
        batch_dim = 0 if batch_first else 1
        if batched and query.shape[batch_dim] != key.shape[batch_dim]:
            raise ValueError(
                f"{_OP}: query and key have shapes {tuple(query.shape)} and {tuple(key.shape)}; "
                "must be of one batch"
            )
        seed = _seed(_OP, self.dropout if self.training else 0.0, None)
        # Computed again, tensors are others; that they are one decides of how many products.
        given = (query, None if key is query else key, None if value is key else value)
        given += (key_padding_mask, need_weights, attn_mask)
        given += (average_attn_weights, is_causal, seed)
        return recomputing.call(self.checkpoint, self._attended, *given)

    def _attended(
        self,
        query,
        key,
        value,
        key_padding_mask,
        need_weights,
        attn_mask,
        average_attn_weights,
        is_causal,
        seed,
    ):
        batched, batch_first = query.dim() == 3, self.batch_first or query.dim() == 2
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = _projected(self, query, key, value)
        if not batched:
            q, k, v = (each.unsqueeze(0) for each in (q, k, v))
        q, k, v = (_heads(self, each, batch_first) for each in (q, k, v))
        sizes = (q.shape[0], q.shape[2], k.shape[2])
        if key_padding_mask is not None:
            rows = (sizes[0], sizes[2]) if batched else (sizes[2],)
            _check_mask("key_padding_mask", key_padding_mask, [rows])
            if not batched:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        k, v = _appended(self, k, self.bias_k), _appended(self, v, self.bias_v)
        extra = k.shape[2] - sizes[2]
        bias, allowed = _masks(self, key_padding_mask, attn_mask, sizes, extra, query.dtype)
        hint = is_causal and key_padding_mask is None and not need_weights and not extra
        mask = None if hint else allowed if bias is None else bias
        dropout = self.dropout if self.training else 0.0
        chosen = {"arithmetic": self._chosen_arithmetic}
        y = scaled_dot_product_attention(q, k, v, mask, dropout, hint, seed=seed, **chosen)
        y = y.transpose(1, 2) if batch_first else y.permute(2, 0, 1, 3)
        out = self.out_proj
        y = product_functions.linear(y.flatten(-2), out.weight, out.bias, **chosen)
        y = y if batched else y.squeeze(0)
        if not need_weights:
            return y, None
        found = weights(q, k, bias=bias, allowed=allowed, dropout=dropout, seed=seed)
        if average_attn_weights:  # one head after the other: PyTorch's mean has other bits
            found = reduce(torch.add, found.unbind(1)) / self.num_heads
        found = found.to(query.dtype)
        return y, found if batched else found.squeeze(0)
