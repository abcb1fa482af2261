# SPDX-License-Identifier: Apache-2.0
"""Puts isobit.torch.apply_rotary in the place of the functions by which transformers' models of
Llama's family turn their queries and keys."""

import torch

from isobit.torch import shared_functions
from isobit.torch.rotary import apply_rotary

NAME = "apply_rotary_pos_emb"


def _table(table, dtype):
    """The first half of each row, which the second repeats; a row for each token."""
    half = table[..., : table.shape[-1] // 2]
    return half.to(dtype).reshape(-1, half.shape[-1])


def rotated(q, k, cos, sin, unsqueeze_dim=1):
    """The same with Isobit, by the cosines and sines that the model has."""
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    batch, seq = cos.shape[:-1]
    rows = torch.arange(batch * seq, device=q.device).view(batch, seq)
    layout = "bhsd" if unsqueeze_dim == 1 else "bshd"
    return apply_rotary(
        *(q, k),
        cos=_table(cos, dtype),
        sin=_table(sin, dtype),
        position_ids=rows if batch > 1 else rows[0],
        layout=layout,
    )


def exchange(model):
    """Exchanges the functions of the Python modules that the model's classes come from, for every
    model of these classes. Returns (names, why others are left alone, what undoes it)."""
    made, refused = [], {}
    for source in shared_functions.modules_of(model):
        exchange, reason = shared_functions.exchange(source, NAME, lambda _: rotated, _difference)
        if reason:
            refused[f"{source}.{NAME}"] = reason
        elif exchange:
            made.append(exchange)
    return [each.source for each in made], refused, made


def _difference(original):
    """Why it is not what `rotated` is, found on a few numbers; empty where it is."""
    made = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=made)

    q, k, half = draw(2, 4, 3, 8), draw(2, 2, 3, 8), draw(2, 3, 4)
    cos, sin = (torch.cat((each, each), -1) for each in (half.cos(), half.sin()))
    try:
        theirs = original(q, k, cos, sin)
    except Exception as error:
        return f"cannot be called with q, k, cos and sin: {type(error).__name__}"
    ours = rotated(q, k, cos, sin)
    same = all(
        a.shape == b.shape and torch.allclose(a, b, atol=1e-5)
        for a, b in zip(theirs, ours, strict=True)
    )
    return "" if same else "turns other pairs than Llama's"
