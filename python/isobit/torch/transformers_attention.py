# SPDX-License-Identifier: Apache-2.0
"""Isobit's attention as one of transformers' implementations, and in the models of transformers
that are there already. transformers is imported where this is asked for, and not before."""

import sys

import torch

from isobit.torch import activation_functions, attention_modules
from isobit.torch.attention_functions import scaled_dot_product_attention
from isobit.torch.functional import _seed

NAME = "isobit"
_OP = f"attn_implementation={NAME!r}"


def _causal(queries, keys, device):
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril()


def _joined(mask, position_bias):
    """One mask of a mask and what is added to scores."""
    if mask is None:
        return position_bias
    if mask.dtype != torch.bool:
        return position_bias + mask
    return position_bias.masked_fill(~mask, -torch.inf)


def attention_forward(
    module,
    query,
    key,
    value,
    attention_mask,
    dropout=0.0,
    scaling=None,
    is_causal=None,
    softcap=None,
    s_aux=None,
    position_bias=None,
    cache=None,
    output_attentions=False,
    **_of_others,
):
    """As transformers calls an attention: (y of (batch, seq, heads, elements), weights or None).

    attention_mask: True where a key is allowed, or what is added to scores; windows and paddings
    are in it. Without one, queries of a module that is_causal see the keys up to themselves, and a
    query alone sees all. s_aux: of each head the score of a key that has no value.
    """
    if cache is not None:
        raise NotImplementedError(f"{_OP}: paged caches are not supported")
    queries, keys = query.shape[2], key.shape[2]
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    is_causal = bool(is_causal) and queries > 1 and attention_mask is None
    mask = attention_mask
    if position_bias is not None:
        mask = _joined(mask, position_bias)
    given = {"scale": scaling, "softcap": softcap or 0.0}
    seed = _seed(_OP, dropout, None)
    y, lse = scaled_dot_product_attention(
        *(query, key, value, mask, dropout),
        causal="top_left" if is_causal else "no",
        enable_gqa=query.shape[1] != key.shape[1],
        return_lse=True,
        seed=seed,
        **given,
    )
    share = 1
    if s_aux is not None:
        share = activation_functions.sigmoid(lse - s_aux.to(lse.dtype)[:, None]).unsqueeze(-1)
        y = (y * share).to(query.dtype)
    weights = None
    if output_attentions:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
        is_bool = mask is not None and mask.dtype == torch.bool
        bias, allowed = (None, mask) if is_bool else (mask, None)
        if is_causal:
            allowed = _causal(queries, keys, query.device)
        weights = attention_modules.weights(
            *(query, key, lse),
            bias=bias,
            allowed=allowed,
            dropout=dropout,
            seed=seed,
            **given,
        )
        weights = (weights * share).to(query.dtype)
    return y.transpose(1, 2).contiguous(), weights


def register_transformers_attention():
    """From now on transformers knows attn_implementation="isobit", with the masks of its "sdpa".
    Imports transformers."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError as error:
        raise ImportError(
            f"register_transformers_attention: needs transformers with AttentionInterface: {error}"
        ) from None
    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def _inside(config):
    """It and those inside."""
    yield config
    for name in config.sub_configs:
        if (inside := getattr(config, name, None)) is not None:
            yield from _inside(inside)


def _configurations(model):
    """[(configuration, its implementation)] of a model and those in it."""
    kind = sys.modules["transformers.modeling_utils"].PreTrainedModel
    parts = [each.config for each in model.modules() if isinstance(each, kind)]
    found = {id(each): each for config in parts for each in _inside(config)}
    return [(each, each._attn_implementation) for each in found.values()]


def _reason(model):
    """Why transformers cannot set it there; empty where it can."""
    kind = type(model)
    if not kind._can_set_attn_implementation():
        return f"{kind.__name__} computes attention without transformers' AttentionInterface"
    if not (kind._supports_sdpa or kind._supports_attention_backend):
        return f"{kind.__name__} says that it supports no other attention than its own"
    if model.config._attn_implementation == NAME:
        return "has Isobit's attention already"
    return ""


def models(model):
    """{name: transformers' model} of those that lie in no other."""
    library = sys.modules.get("transformers.modeling_utils")
    found = {}
    if library is not None:
        for name, module in model.named_modules():
            inside = any(f"{name}.".startswith(f"{outer}." if outer else "") for outer in found)
            if isinstance(module, library.PreTrainedModel) and not inside:
                found[name] = module
    return found


def exchange(model):
    """Sets it in transformers' models. Returns (names, why others are left alone, what undoes
    it)."""
    found, refused, undo = [], {}, []
    for name, each in models(model).items():
        if reason := _reason(each):
            refused[name] = reason
            continue
        register_transformers_attention()
        before = _configurations(each)
        try:
            each.set_attn_implementation(NAME)
        except (ImportError, ValueError) as error:
            restore(before)
            refused[name] = " ".join(str(error).split())
            continue
        undo += [pair for pair in before if pair[0]._attn_implementation != pair[1]]
        found.append(name)
    return found, refused, undo


def restore(undo):
    while undo:
        config, before = undo.pop()
        if config._attn_implementation == NAME:
            config._attn_implementation = {"": before}  # of this one, not of those inside
