# SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings: tables, queries and keys turned by them, and the module that keeps tables."""

from functools import lru_cache

import torch
from torch.autograd import Function

from isobit._frequencies import inverse_frequencies
from isobit._rotary import LAYOUTS, STYLES, require_choice
from isobit.torch.rotation import ROPE, ROPE_TABLES


@lru_cache(maxsize=64)
def _frequencies(dim, base):  # no tensor: under meta or a mode, one without numbers would be kept
    return inverse_frequencies(dim, base)[0]


def _inv_freq(dim, base, device):
    return torch.tensor(_frequencies(dim, base), dtype=torch.float64, device=device)


# As torch.compiler.assume_constant_result does, which imports the whole compiler.
_inv_freq._dynamo_marked_constant = True


def rotary_tables(
    length,
    dim,
    *,
    base=10000.0,
    inv_freq=None,
    offset=0,
    positions=None,
    dtype=torch.float32,
    device=None,
):
    """(cos, sin), of shape (length, dim / 2), for apply_rotary.

    Position n is offset + n, or offset + positions[n]. Frequency i is base^(-2i / dim), rounded to
    float64, or inv_freq[i], of float32 or float64. The angle is position times frequency, exactly;
    its cosine and sine are computed in float64 and rounded once, to float32 or float64.
    """
    if inv_freq is None:
        inv_freq = _inv_freq(dim, float(base), torch.device(device or "cpu"))
    elif inv_freq.shape != (dim // 2,):
        shape = tuple(inv_freq.shape)
        raise ValueError(f"rotary_tables: inv_freq has shape {shape}; must be ({dim // 2},)")
    return ROPE_TABLES(inv_freq, length, offset, positions, dtype)


def apply_rotary(
    q,
    k=None,
    *,
    cos,
    sin,
    position_ids=None,
    cu_seqlens=None,
    style="half",
    layout="bshd",
    offset=0,
    inplace=False,
):
    """q turned by the angles of its positions, or (q, k) where k is given.

    q and k have the dimensions (batch, seq, heads, dim), or in layout "bhsd" (batch, heads, seq,
    dim), of any strides; with cu_seqlens, the ends of sequences that stand one after the other,
    they have no batch. cos and sin have a row for each position and a column for each pair that
    turns, in float32, or float64 for float64. style "half" pairs elements i and i + dim / 2,
    "interleaved" 2i and 2i + 1. A position is the offset plus position_ids, (batch, seq) or (seq),
    or plus the place in the sequence; on the CPU one without a row is an error, on a GPU what it
    turns becomes NaN. inplace changes q and k themselves, and returns them.
    """
    name = "apply_rotary"
    require_choice(name, "style", style, STYLES)
    require_choice(name, "layout", layout, LAYOUTS)
    packed = cu_seqlens is not None
    for label, each in (("q", q), ("k", k), ("cos", cos), ("sin", sin)):
        if not isinstance(each, torch.Tensor) and (label != "k" or each is not None):
            raise TypeError(f"{name}: {label} must be a Tensor; it is {type(each).__name__}")
    for label, each in (("q", q), ("k", k)):
        if each is not None and each.dim() != (3 if packed else 4):
            raise ValueError(
                f"{name}: {label} has {each.dim()} dimensions; must have {3 if packed else 4}"
            )
    for label, each in (("cos", cos), ("sin", sin)):
        if each.dim() != 2:  # one for each sequence would be read as one after the other
            raise ValueError(f"{name}: {label} has {each.dim()} dimensions; must have 2")
    if packed:
        if position_ids is not None:
            raise ValueError(f"{name}: position_ids and cu_seqlens are given; one says positions")
        position_ids = sequence_positions(name, cu_seqlens, q.shape[0 if layout == "bshd" else 1])

    if position_ids is not None and position_ids.dtype == torch.int32:
        position_ids = position_ids.long()

    def there(x):
        if x is None:
            return None
        x = x.unsqueeze(0) if packed else x
        return x.transpose(1, 2) if layout == "bhsd" else x

    def back(x):
        x = x.transpose(1, 2) if layout == "bhsd" else x
        return x.squeeze(0) if packed else x

    turn = (cos, sin, position_ids, STYLES.index(style), offset)
    if inplace:
        return _in_place(q, k, there, turn)
    y_q, y_k = ROPE(there(q), there(k), *turn)
    return back(y_q) if k is None else (back(y_q), back(y_k))


class _InPlace(Function):
    """One tensor, since PyTorch lets no function change several views."""

    @staticmethod
    def forward(ctx, x, there, *turn):
        torch.ops.isobit.rope_(there(x), None, *turn)
        ctx.mark_dirty(x)
        ctx.there = there
        ctx.save_for_backward(*turn[:3])
        ctx.turn = turn
        return x

    @staticmethod
    def backward(ctx, grad):
        turn = (*ctx.saved_tensors, *ctx.turn[3:])
        result = grad.clone(memory_format=torch.preserve_format)
        seen = ROPE(ctx.there(grad), None, *turn, True)[0]
        ctx.there(result).copy_(seen)
        return result, *(None,) * (1 + len(turn))


def _in_place(q, k, there, turn):
    tensors = (q,) if k is None else (q, k)
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
        for each in tensors:
            _InPlace.apply(each, there, *turn)
    else:
        torch.ops.isobit.rope_(there(q), there(k), *turn)
    return q if k is None else (q, k)


def sequence_positions(function, ends, tokens):
    """The place of every token in its sequence, of sequences that end where cu_seqlens says."""
    if ends.dtype not in (torch.int32, torch.int64) or ends.dim() != 1 or ends.numel() == 0:
        raise ValueError(f"{function}: cu_seqlens must be one row of int32 or int64")
    ends = ends.long()
    if not torch.compiler.is_compiling() and ends.device.type == "cpu":
        lengths = ends.diff()
        if ends[0] != 0 or ends[-1] != tokens:
            raise ValueError(f"{function}: cu_seqlens must go from 0 to {tokens}, the tokens")
        if (lengths < 0).any():
            at = int((lengths < 0).nonzero()[0])
            raise ValueError(
                f"{function}: cu_seqlens falls from {ends[at]} to {ends[at + 1]}; may not decrease"
            )
    places = torch.arange(tokens, device=ends.device)
    before = torch.searchsorted(ends, places, right=True) - 1
    return places - ends[before]


class RotaryEmbedding(torch.nn.Module):
    """Turns queries and keys by the angles of their positions; see apply_rotary.

    inv_freq is base^(-2i / dim), scaled as `scaling`, transformers' rope_parameters, says; or a
    tensor of the caller's. The module keeps tables that grow with the longest sequence; compiled
    code computes the rows that it needs, with the same bits.
    """

    def __init__(
        self,
        dim,
        base=10000,
        *,
        inv_freq=None,
        scaling=None,
        max_positions=0,
        style="half",
        layout="bshd",
        device=None,
    ):
        super().__init__()
        require_choice("RotaryEmbedding", "style", style, STYLES)
        require_choice("RotaryEmbedding", "layout", layout, LAYOUTS)
        self.dim, self.base, self.style, self.layout = dim, base, style, layout
        self.factor = 1.0
        if inv_freq is None:
            frequencies, self.factor = inverse_frequencies(dim, base, scaling, max_positions)
            # A model that is made on meta gets parameters and buffers later, and nothing else.
            device = "cpu" if device is None or torch.device(device).type == "meta" else device
            inv_freq = torch.tensor(frequencies, dtype=torch.float64, device=device)
        # No buffer: a module that is cast to bfloat16 would cast it too.
        self.inv_freq = inv_freq.to(device)
        self._tables = {}
        self.max_positions = max_positions

    def tables(self, length, device, dtype=torch.float32, positions=None):
        """(cos, sin) of the positions 0 to length, or of those given."""
        inv_freq = self.inv_freq.to(device)
        cos, sin = rotary_tables(
            length, self.dim, inv_freq=inv_freq, positions=positions, dtype=dtype
        )
        return (cos, sin) if self.factor == 1 else (cos * self.factor, sin * self.factor)

    def _kept(self, length, device, dtype):
        found = self._tables.get((device, dtype))
        if found is None or found[0].shape[0] < length:
            before = 0 if found is None else found[0].shape[0]
            with torch.inference_mode(False):  # whose tensors no later backward may keep
                found = self.tables(max(length, 2 * before, self.max_positions), device, dtype)
            if type(found[0]) is torch.Tensor:  # and not that of a mode, such as FakeTensorMode
                self._tables[device, dtype] = found
        return found

    def forward(self, q, k=None, *, position_ids=None, offset=0):
        dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
        seq = q.shape[1 if self.layout == "bshd" else 2]
        how = {"style": self.style, "layout": self.layout}
        compiling = torch.compiler.is_compiling()
        if position_ids is None and not compiling:
            cos, sin = self._kept(offset + seq, q.device, dtype)
            return apply_rotary(q, k, cos=cos, sin=sin, offset=offset, **how)
        # A row for each token: which positions they have, only their device knows.
        if position_ids is None:
            position_ids = torch.arange(offset, offset + seq, device=q.device)
        elif offset:
            position_ids = position_ids + offset
        rows = torch.arange(position_ids.numel(), device=q.device).reshape(position_ids.shape)
        cos, sin = self.tables(
            position_ids.numel(), q.device, dtype, positions=position_ids.reshape(-1)
        )
        return apply_rotary(q, k, cos=cos, sin=sin, position_ids=rows, **how)

    def extra_repr(self):
        return f"{self.dim}, base={self.base}, style={self.style!r}, layout={self.layout!r}"
