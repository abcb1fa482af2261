# SPDX-License-Identifier: Apache-2.0
"""What both passes of attention have in Triton: scores as powers of two, their weights, how parts
become one; formula.h's arithmetic of floats, kept to the bit.

A tile is of queries and keys, either of them down its rows. What one chain takes after the other,
element by element, waits in memory of the program's own, since registers have no indices; a barrier
suffices for that, since threads of a program share a cache (on AMD's GPUs unless tgsplit is asked
for). There, what is not seen has bits of its own: times zero, an infinite factor would make NaN.
"""

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from isobit.ops.activation.triton_functions import (
    _L0,
    _L1,
    _L2,
    _L3,
    _at_least,
    _at_most,
    _bits,
    _magnitude,
    _negative,
    _number,
    _power,
    _real,
    _tanh_derivative,
    function_of,
)
from isobit.ops.triton_variants import scalar, wide, widened

PANEL = tl.constexpr(128)  # keys, or queries, whose terms are one chain
RUN = tl.constexpr(16)  # panels that are folded one after the other
INFINITY = tl.constexpr(float("inf"))
LOWEST = tl.constexpr(-3.4028234663852886e38)
_LEAST, _MOST = tl.constexpr(-125.0), tl.constexpr(128.0)  # exponents of weights
_WHOLE = tl.constexpr(2.0**23)  # beyond, every number is one
_SIGN = tl.constexpr(0x80000000)
_NAN, _UNSEEN = tl.constexpr(0x7FC00000), tl.constexpr(0x7FC00001)
_FRACTION, _INTEGER = tl.constexpr(0x7FFFFF), tl.constexpr(0x4B000000)
_ONE, _ROOT_HALF = tl.constexpr(0x3F800000), tl.constexpr(0x3F3504F3)
_LEAST_NORMAL = tl.constexpr(2.0**-126)


def _hex(text):
    return tl.constexpr(float.fromhex(text))


_LN2, _LOG2_E, _LOG2_E_REST = _hex("0x1.62e43p-1"), _hex("0x1.715476p0"), _hex("0x1.4ae0cp-26")
# Coefficients of 2^f.
_P0, _P1, _P2 = _hex("0x1.62e43p-1"), _hex("0x1.ebfbep-3"), _hex("0x1.c6af76p-5")
_P3, _P4, _P5 = _hex("0x1.3b2a3cp-7"), _hex("0x1.5f0becp-10"), _hex("0x1.44322cp-13")


class Array(NamedTuple):
    """Where the elements of an argument lie."""

    data: Any
    batch: int
    head: int
    row: int
    col: int


class Band(NamedTuple):
    """A query sees a key that is from `low` to `high` places behind its own number. Slopes count
    from the one that is `apart` places behind."""

    low: int
    high: int
    apart: int


class Scaling(NamedTuple):
    """The bits of what products and biases are multiplied by; `before_cap` may be None."""

    factor: int
    bias: int
    before_cap: int
    gradient: int


def array_of(tensor):
    if tensor is None:
        return None
    return Array(tensor, *tensor.stride(), *(0,) * (4 - tensor.dim()))


def band_of(queries, keys, causal, window):
    offset = keys - queries if causal == "bottom_right" else 0
    far = 2**60
    low = offset - window + 1 if 0 < window < far else -far
    high = offset if causal != "no" else offset + window - 1 if 0 < window < far else far
    return Band(low, high, keys - queries)


def bits_of(number):
    """Of a number, rounded to float once, to infinity beyond its range."""
    return torch.tensor(number, dtype=torch.float64).float().view(torch.int32).item()


def scaling_of(head_dim, scale, softcap):
    scale = float(scale) or (1 / math.sqrt(head_dim) if head_dim else 1.0)
    log2_e = float.fromhex("0x1.71547652b82fep0")
    caps = softcap != 0
    return Scaling(
        bits_of((softcap if caps else scale) * log2_e),
        bits_of(log2_e),
        bits_of(scale / softcap) if caps else None,
        bits_of(scale),
    )


def common_of(q, k, v, causal, window, scale, softcap, **optional):
    """The arguments of every kernel that computes scores; `optional` arrays may be None."""
    _, heads, seq_q, head_dim = q.shape
    kv_heads, seq_k, value_dim = v.shape[1:]
    arrays = {"q": q, "k": k, "v": v, **optional}
    return {name: array_of(tensor) for name, tensor in arrays.items()} | {
        "heads": heads,
        "group": heads // kv_heads if kv_heads else 1,
        "seq_q": seq_q,
        "seq_k": seq_k,
        "head_dim": head_dim,
        "value_dim": value_dim,
        "band": band_of(seq_q, seq_k, causal, int(window)),
        "scaling": scaling_of(head_dim, scale, softcap),
    }


def columns_of(count):
    """Of a tile that has so many."""
    return triton.next_power_of_2(count or 1)


def room_of(q, programs, rows):
    """Where a tile of each program waits; see `leave`."""
    return q.new_empty(programs * rows * PANEL.value, dtype=torch.int32)


@triton.jit
def place_of(heads, tiles, parts, ROWS: tl.constexpr):
    """Of a program: its number and that of its part of a tile's work; its head among all, its batch
    and its head there; its first row."""
    index = tl.program_id(0).to(tl.int64)
    line = index // parts
    of_head = line // tiles
    batch = of_head // heads
    first = (line - of_head * tiles) * ROWS
    return index, index - line * parts, of_head, batch, of_head - batch * heads, first


@triton.jit
def held(key_begin, key_end, batch, seq_k):
    """The keys that a sequence has; what is no such range is taken for the nearest that is."""
    begin, end = seq_k * 0, seq_k
    if key_begin is not None:
        begin = tl.minimum(tl.maximum(tl.load(start(key_begin, batch, 0)), 0), seq_k)
    if key_end is not None:
        end = tl.minimum(tl.maximum(tl.load(start(key_end, batch, 0)), begin), seq_k)
    return begin, end


@triton.jit
def start(array, batch, head):
    """Where the elements of a head begin."""
    return array.data + (batch * array.batch + head * array.head)


@triton.jit
def chains(a, a_step, a_inside, b, b_step, b_inside, count, ROWS: tl.constexpr, COLS: tl.constexpr):
    """A tile of the sums of a b, from +0 on, one element of each after the other.

    The interpreter takes long to call a function, so loops call none that they can do without.
    """
    total = tl.zeros([ROWS, COLS], tl.float32)
    for at in range(count):
        of_a = tl.load(a + at * a_step, mask=a_inside, other=0)
        of_b = tl.load(b + at * b_step, mask=b_inside, other=0)
        if of_a.dtype != tl.float32:
            of_a, of_b = wide(of_a), wide(of_b)
        total = tl.fma(of_a, of_b, total)
    return total


@triton.jit
def nearest(x):
    """The nearest whole number, ties to even."""
    size = _magnitude(x)
    rounded = _real(_bits(size + _WHOLE - _WHOLE) | (_bits(x) & _SIGN))
    return tl.where(size < _WHOLE, rounded, x)


@triton.jit
def _exp2_of_fraction(f):
    series = tl.fma(tl.fma(tl.fma(f, _P5, _P4), f, _P3), f, _P2)
    return tl.fma(tl.fma(tl.fma(series, f, _P1), f, _P0), f, 1.0)


@triton.jit
def _power_or_zero(n):
    return tl.where(n < _LEAST, 0.0, _power(_at_least(n, _LEAST)))


@triton.jit
def base_of(most):
    """What is taken off exponents: their largest, or 0 where there is none."""
    return tl.where(most < LOWEST, 0.0, most)


@triton.jit
def exponents(product, bias, mask, slopes, batch, head, query, key, inside, band, scaling):
    """Of scores to base 2; -infinity where a query does not see a key."""
    if scaling.before_cap is not None:
        product = function_of(product * scalar(scaling.before_cap, product), "tanh")
    exponent = product * scalar(scaling.factor, product)
    if bias is not None:
        at = query * bias.row + key * bias.col
        added = widened(start(bias, batch, head), at, inside)
        biased = tl.fma(added, scalar(scaling.bias, exponent), exponent)
        exponent = tl.where(added < LOWEST, -INFINITY, biased)
    if slopes is not None:
        slope = tl.load(start(slopes, batch, head)) * -1.0
        added = slope * tl.abs(query + band.apart - key).to(tl.float32)
        sloped = tl.fma(added, scalar(scaling.bias, exponent), exponent)
        sloped = tl.where(added < LOWEST, -INFINITY, sloped)
        if bias is not None:  # what it made absent stays so
            sloped = tl.where(exponent < LOWEST, exponent, sloped)
        exponent = sloped
    seen = inside & (key - query >= band.low) & (key - query <= band.high)
    if mask is not None:
        at = query * mask.row + key * mask.col
        seen = seen & (tl.load(start(mask, batch, head) + at, mask=inside, other=0) != 0)
    return tl.where(seen, exponent, -INFINITY)


@triton.jit
def weights(exponent, base):
    """2^exponent / 2^base, +0 where that is below all weights."""
    n = nearest(exponent)
    shift = n - base
    weight = _exp2_of_fraction(exponent - n) * _power(_at_least(shift, _LEAST))
    return tl.where(shift < _LEAST, 0.0, weight)


@triton.jit
def probabilities(exponent, base, inverse):
    """The same over the weights' sum. The base is an argument, and may be far below."""
    n = nearest(exponent)
    shift = _at_most(n - base, _MOST)
    weight = _exp2_of_fraction(exponent - n) * _power(_at_least(shift, _LEAST))
    return tl.where(shift < _LEAST, 0.0, weight * inverse)


@triton.jit
def before_cap(gradient, product, scaling):
    """The gradient of what the scale multiplies, from that of a score."""
    if scaling.before_cap is not None:
        value, exponent = _tanh_derivative(product * scalar(scaling.before_cap, product))
        gradient = gradient * _number(value, exponent)
    return gradient


@triton.jit
def halves(x):
    """Folds the columns' halves onto each other until one column is left."""
    for _ in tl.static_range(10):
        if x.shape[1] > 1:
            x = tl.sum(tl.reshape(x, [x.shape[0], 2, x.shape[1] // 2]), 1)
    return x


@triton.jit
def largest(exponent):
    """The largest whole exponent of each row. One of NaN makes its row NaN as it is."""
    n = nearest(exponent)
    return tl.max(tl.where(n != n, -INFINITY, n), 1, keep_dims=True)


@triton.jit
def factors(a, b):
    """How two parts become one: the larger of their largest, and what each is multiplied by."""
    most = tl.where(a > b, a, b)
    base = base_of(most)
    return most, _power_or_zero(a - base), _power_or_zero(b - base)


@triton.jit
def folded(a, of_a, b, of_b):
    return tl.fma(a, of_a, b * of_b)


@triton.jit
def inverse_of(most, total):
    """Of the weights' sum: 0 where there are no keys, NaN where the largest is."""
    inverse = tl.div_rn(tl.full(total.shape, 1.0, tl.float32), total) + (most - most)
    return tl.where(most < LOWEST, total, inverse)


@triton.jit
def log2(x):
    subnormal = x < _LEAST_NORMAL
    normal = tl.where(subnormal, x * 16777216.0, x)
    offset = tl.where(subnormal, 8388759.0, 8388735.0)  # 2^23 + 127, and 24 more
    shifted = _bits(normal) + (_ONE - _ROOT_HALF)
    exponent = _real((shifted >> 23) + _INTEGER) - offset
    f = _real((shifted & _FRACTION) + _ROOT_HALF) - 1.0
    s = tl.div_rn(f, f + 2.0)
    z = s * s
    series = tl.fma(tl.fma(tl.fma(z, _L3, _L2), z, _L1), z, _L0)
    half = f * 0.5
    square = half * f
    missed = tl.fma(half, f, _negative(square))
    head = f - square
    rest = (f - head) - square - missed + s * tl.fma(z, series, square)
    scaled = head * _LOG2_E
    scaled_rest = tl.fma(rest, _LOG2_E, tl.fma(head, _LOG2_E, _negative(scaled)))
    total = exponent + scaled
    total_rest = (exponent - total) + scaled
    result = total + (tl.fma(head, _LOG2_E_REST, scaled_rest) + total_rest)
    other = tl.where(x < 0.0, float("nan"), x - INFINITY)  # -inf, NaN
    return tl.where(x > 0.0, tl.where(x < INFINITY, result, x), other)


@triton.jit
def logarithm(most, total):
    return (most + log2(total)) * _LN2


@triton.jit
def leave(room, at, value, exponent):
    """Lets a tile wait in memory, with bits of its own for what is not seen."""
    bits = tl.where(value != value, _NAN, _bits(value))
    tl.store(room + at, tl.where(exponent < LOWEST, _UNSEEN, bits).to(tl.int32))


@triton.jit
def taken(room, step, other, other_step, inside, count, like):
    """A tile of chains like those of `chains`, of what waits and is seen, a row of it a step."""
    total = tl.zeros_like(like)
    for at in range(count):
        waiting = tl.load(room + at * step)
        factor = tl.load(other + at * other_step, mask=inside, other=0)
        if factor.dtype != tl.float32:
            factor = wide(factor)
        more = tl.fma(waiting.to(tl.float32, bitcast=True), factor, total)
        total = tl.where(waiting == _UNSEEN, total, more)
    return total
