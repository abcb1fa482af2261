# SPDX-License-Identifier: Apache-2.0
"""rope in Triton, of contiguous arrays and given tables, with the bits of all other variants."""

import triton
import triton.language as tl

from isobit.ops.triton_variants import Launch, Variant, by_name, fitting, store, widened

_HELD = 2048  # elements that a program turns at a time, where its plan is not given


@triton.jit
def _turned(a, b, cosine, sine, minus_sine):
    """See formula.h: each of them is rounded twice."""
    return tl.fma(a, cosine, b * minus_sine), tl.fma(b, cosine, a * sine)


@triton.jit
def _turn_heads(
    x,
    y,
    cosine,
    sine,
    minus_sine,
    heads,
    head_dim,
    pairs,
    INTERLEAVED: tl.constexpr,
    HEADS: tl.constexpr,
    PAIRS: tl.constexpr,
    REST: tl.constexpr,
):
    """All heads of one token."""
    for first in range(0, heads, HEADS):
        head = first + tl.arange(0, HEADS)[:, None]
        if INTERLEAVED:
            element = tl.arange(0, 2 * PAIRS)[None, :]
            at = head * head_dim + element
            inside = (head < heads) & (element < 2 * pairs)
            both = tl.reshape(widened(x, at, inside), (HEADS, PAIRS, 2))
            a, b = tl.split(both)
            a, b = _turned(a, b, cosine, sine, minus_sine)
            store(y, at, tl.reshape(tl.join(a, b), (HEADS, 2 * PAIRS)), inside)
        else:
            pair = tl.arange(0, PAIRS)[None, :]
            at = head * head_dim + pair
            inside = (head < heads) & (pair < pairs)
            a, b = widened(x, at, inside), widened(x, at + pairs, inside)
            a, b = _turned(a, b, cosine, sine, minus_sine)
            store(y, at, a, inside)
            store(y, at + pairs, b, inside)
        if REST > 0:
            element = 2 * pairs + tl.arange(0, REST)[None, :]
            at = head * head_dim + element
            inside = (head < heads) & (element < head_dim)
            store(y, at, widened(x, at, inside), inside)


@triton.jit
def _token(
    q,
    k,
    y_q,
    y_k,
    cos,
    sin,
    positions,
    seq,
    position_count,
    offset,
    table,
    heads,
    kv_heads,
    head_dim,
    pairs,
    BACKWARD: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    HEADS: tl.constexpr,
    PAIRS: tl.constexpr,
    REST: tl.constexpr,
):
    """A row of the tables, and by it all heads of q and k."""
    token = tl.program_id(0).to(tl.int64)
    position = token % seq if positions is None else tl.load(positions + token % position_count)
    position += offset
    pair = tl.arange(0, PAIRS)[None, :]
    # What has no row is NaN.
    known = (pair < pairs) & (position >= 0) & (position < table)
    at = position * pairs + pair
    cosine = tl.load(cos + at, mask=known, other=float("nan"))
    sine = tl.load(sin + at, mask=known, other=float("nan"))
    # Triton's minus is a difference from 0, which loses the sign of a zero.
    minus_sine = sine * -1.0
    if BACKWARD:
        sine, minus_sine = minus_sine, sine
    _turn_heads(
        q + token * heads * head_dim,
        y_q + token * heads * head_dim,
        cosine,
        sine,
        minus_sine,
        heads,
        head_dim,
        pairs,
        INTERLEAVED,
        HEADS,
        PAIRS,
        REST,
    )
    if k is not None:
        _turn_heads(
            k + token * kv_heads * head_dim,
            y_k + token * kv_heads * head_dim,
            cosine,
            sine,
            minus_sine,
            kv_heads,
            head_dim,
            pairs,
            INTERLEAVED,
            HEADS,
            PAIRS,
            REST,
        )


def _launch(plan, q, k, y_q, y_k, cos, sin, positions, style, offset, rotary_dim, backward):
    batch, seq, heads, head_dim = q.shape
    if not 0 <= rotary_dim <= head_dim or rotary_dim % 2:
        raise ValueError(f"rope: rotary_dim is {rotary_dim}; must be even, from 0 to {head_dim}")
    if (k is None) != (y_k is None):
        raise ValueError("rope: k is given without its result, or the reverse; must be both")
    pairs = (rotary_dim or head_dim) // 2
    if cos.shape[1] != pairs:
        raise ValueError(f"rope: cos has {cos.shape[1]} columns; must have {pairs}")
    rest = head_dim - 2 * pairs
    yield Launch(
        _token,
        (batch * seq,),
        {
            "q": q,
            "k": k,
            "y_q": y_q,
            "y_k": y_k,
            "cos": cos,
            "sin": sin,
            "positions": positions,
            "seq": seq,
            "position_count": seq if positions is None else positions.numel(),
            "offset": offset,
            "table": cos.shape[0],
            "heads": heads,
            "kv_heads": 0 if k is None else k.shape[2],
            "head_dim": head_dim,
            "pairs": pairs,
            "BACKWARD": backward,
            "INTERLEAVED": style == "interleaved",
            "HEADS": plan["heads"],
            "PAIRS": triton.next_power_of_2(max(pairs, 1)),
            "REST": triton.next_power_of_2(rest) if rest else 0,
        },
        plan["warps"],
    )


def _launches(
    plan,
    *,
    q=None,
    k=None,
    y_q=None,
    y_k=None,
    grad_y_q=None,
    grad_y_k=None,
    grad_q=None,
    grad_k=None,
    cos,
    sin,
    positions=None,
    style="half",
    offset_positions=0,
    rotary_dim=0,
    base=None,  # of tables that are not given, which this declines
):
    arrays = (q, k, y_q, y_k) if grad_y_q is None else (grad_y_q, grad_y_k, grad_q, grad_k)
    return _launch(
        plan,
        *arrays,
        *(cos, sin, positions, style, offset_positions, rotary_dim),
        grad_y_q is not None,
    )


_TENSORS = {"q", "k", "y_q", "y_k", "grad_y_q", "grad_y_k", "grad_q", "grad_k"}
_TENSORS |= {"cos", "sin", "positions"}
_KNOBS = {"warps": (1, 2, 4, 8), "heads": (1, 2, 4, 8, 16, 32)}


def _plan(case):
    """As many heads at a time as fill a tile, and warps whose threads have 16 elements of it."""
    shape = case.shapes["grad_y_q" if "grad_y_q" in case.shapes else "q"]
    width = triton.next_power_of_2(max(shape[3], 1))
    fitting = [
        heads
        for heads in _KNOBS["heads"]
        if heads == 1 or (heads * width <= _HELD and heads // 2 < shape[2])
    ]
    heads = max(fitting)
    return {"warps": min(max(heads * width // (32 * 16), 1), 8), "heads": heads}


VARIANTS = by_name(
    Variant(
        name="token_per_program",
        kinds=("fwd", "bwd"),
        takes=frozenset(_TENSORS | {"style", "base", "offset_positions", "rotary_dim"}),
        make=_launches,
        knobs=_KNOBS,
        fits=fitting("rope", batch_rank=1, of_all=("positions",)),
        choose=_plan,
        declines=lambda case: "" if "cos" in case.dtypes else "it needs cos and sin",
    )
)
