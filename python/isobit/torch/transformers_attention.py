# SPDX-License-Identifier: Apache-2.0
"""Isobit's attention as one of transformers' implementations, and in the models of transformers
that are there already. transformers is imported where this is asked for, and not before."""

import sys

import torch

from isobit.torch import activation_functions, attention_modules
from isobit.torch.attention_functions import scaled_dot_product_attention
from isobit.torch.functional import _seed
from isobit.torch.probing import lies_in
from isobit.torch.varlen_functions import varlen_attention

# transformers' name of it in each arithmetic.
NAMES = {"canonical": "isobit", "tensor": "isobit_tensor"}
_OP = f"attn_implementation={NAMES['canonical']!r}"


def _causal(queries, keys, device):
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril()


def _joined(mask, position_bias):
    """One mask of a mask and what is added to scores."""
    if mask is None:
        return position_bias
    if mask.dtype != torch.bool:
        return position_bias + mask
    return position_bias.masked_fill(~mask, -torch.inf)


def _of_sequences(ends, rows, device):
    """Of each row: its sequence, and its place there from the end."""
    ends = ends.to(device=device, dtype=torch.int64)
    places = torch.arange(rows, device=device)
    sequence = torch.searchsorted(ends, places, right=True)
    return sequence, places - ends[sequence.clamp(max=ends.shape[0] - 1)]


def _require_mask_of(mask, ends_q, ends_k, is_causal, window):
    """transformers may make a mask for the whole, or of packed positions. It may tell nothing of a
    sequence that is not known without it."""
    rows, device = mask.shape[-2:], mask.device
    (own, place), (others, key) = (
        _of_sequences(ends, count, device)
        for ends, count in zip((ends_q, ends_k), rows, strict=True)
    )
    apart, together = key - place[:, None], own[:, None] == others
    allowed = torch.ones_like(together)
    if is_causal:
        allowed = allowed & (apart <= 0)
    if window:
        allowed = allowed & (apart.abs() < window)
    together = together & (own[:, None] < ends_q.shape[0])
    if mask.dtype != torch.bool or not ((mask == allowed) | ~together).all():
        raise ValueError(
            f"{_OP}: attention_mask allows other keys of a sequence than is_causal and "
            "sliding_window do; with cu_seq_lens_q it must allow the same"
        )


def _packed(query, key, value, mask, ends, is_causal, window, refused, **given):
    """(y, lse) of sequences that lie one behind the other, whatever is their batch."""
    for name, value_given in refused.items():
        if value_given is not None and value_given is not False:
            raise NotImplementedError(f"{_OP}: {name} and cu_seq_lens_q are given")
    ends_q, ends_k = ends
    if mask is not None:
        if query.shape[0] != 1:
            raise ValueError(
                f"{_OP}: attention_mask and cu_seq_lens_q are given for a batch of "
                f"{query.shape[0]}; must be 1"
            )
        _require_mask_of(mask, ends_q, ends_k, is_causal, window)
    rows = [each.transpose(1, 2).flatten(0, 1) for each in (query, key, value)]
    y, lse = varlen_attention(
        *(*rows, ends_q, ends_k),
        causal="bottom_right" if is_causal else "no",
        window=window or 0,
        enable_gqa=query.shape[1] != key.shape[1],
        return_lse=True,
        **given,
    )
    batch = (query.shape[0], query.shape[2])
    y, lse = torch.unflatten(y, 0, batch), torch.unflatten(lse, 1, batch)
    return y.transpose(1, 2), lse.transpose(0, 1)


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
    sliding_window=None,
    cu_seq_lens_q=None,
    cu_seq_lens_k=None,
    arithmetic="canonical",
    **_of_others,
):
    """As transformers calls an attention: (y of (batch, seq, heads, elements), weights or None).

    attention_mask: True where a key is allowed, or what is added to scores; windows and paddings
    are in it. Without one, queries of a module that is_causal see the keys up to themselves, and a
    query alone sees all. s_aux: of each head the score of a key that has no value.

    cu_seq_lens_q: rows of the whole batch are packed sequences, as of varlen_attention, and so are
    keys, by cu_seq_lens_k where that is given. Then sliding_window counts, which else is in the
    mask, and a mask may only say the same.

    arithmetic: as of scaled_dot_product_attention; weights are canonical.
    """
    if cache is not None:
        raise NotImplementedError(f"{_OP}: paged caches are not supported")
    queries, keys = query.shape[2], key.shape[2]
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    given = {"scale": scaling, "softcap": softcap or 0.0}
    chosen = {"arithmetic": arithmetic}
    if cu_seq_lens_q is not None:
        ends = cu_seq_lens_q, cu_seq_lens_q if cu_seq_lens_k is None else cu_seq_lens_k
        refused = {"position_bias": position_bias, "output_attentions": output_attentions}
        options = (is_causal, sliding_window, refused)
        y, lse = _packed(
            *(query, key, value, attention_mask, ends, *options),
            dropout_p=dropout,
            **given,
            **chosen,
        )
    elif cu_seq_lens_k is not None:
        raise ValueError(f"{_OP}: cu_seq_lens_k is given without cu_seq_lens_q")
    else:
        is_causal = bool(is_causal) and queries > 1 and attention_mask is None
        mask = attention_mask
        if position_bias is not None:
            mask = _joined(mask, position_bias)
        seed = _seed(_OP, dropout, None)
        y, lse = scaled_dot_product_attention(
            *(query, key, value, mask, dropout),
            causal="top_left" if is_causal else "no",
            enable_gqa=query.shape[1] != key.shape[1],
            return_lse=True,
            seed=seed,
            **given,
            **chosen,
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
            *(query, key),
            bias=bias,
            allowed=allowed,
            dropout=dropout,
            seed=seed,
            **given,
        )
        weights = (weights * share).to(query.dtype)
    return y.transpose(1, 2).contiguous(), weights


def tensor_attention_forward(*given, **options):
    """attention_forward by tensor cores."""
    return attention_forward(*given, **options, arithmetic="tensor")


def register_transformers_attention():
    """From now on transformers knows attn_implementation="isobit", and "isobit_tensor" of the
    arithmetic "tensor", with the masks of its "sdpa". Imports transformers."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError as error:
        raise ImportError(
            f"register_transformers_attention: needs transformers with AttentionInterface: {error}"
        ) from None
    functions = {"canonical": attention_forward, "tensor": tensor_attention_forward}
    for arithmetic, name in NAMES.items():
        AttentionInterface.register(name, functions[arithmetic])
        AttentionMaskInterface.register(name, sdpa_mask)


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
    if model.config._attn_implementation in NAMES.values():
        return "has Isobit's attention already"
    return ""


def models(model):
    """{name: transformers' model} of those that lie in no other."""
    library = sys.modules.get("transformers.modeling_utils")
    found = {}
    if library is not None:
        for name, module in model.named_modules():
            if isinstance(module, library.PreTrainedModel) and not lies_in(name, found):
                found[name] = module
    return found


def exchange(model, arithmetic):
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
            each.set_attn_implementation(NAMES[arithmetic])
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
        if config._attn_implementation in NAMES.values():
            config._attn_implementation = {"": before}  # of this one, not of those inside
