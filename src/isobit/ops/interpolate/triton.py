# SPDX-License-Identifier: Apache-2.0
"""interpolate in Triton, forward and backward, of arrays of any strides, with the bits of all other
variants. No GPU has run it yet: Triton's interpreter has.

    VARIANTS["gather"].run(x=x, y=y, mode="linear", align_corners="yes")
    VARIANTS["gather"].run(grad_y=grad_y, grad_x=grad_x, mode="linear", align_corners="yes")
"""

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from isobit.ops.triton_images import at_place, images_of, places
from isobit.ops.triton_variants import (
    Launch,
    Variant,
    bits_of,
    by_name,
    fitting,
    parts,
    scalar,
    store,
    widened,
)

_LANES = 128  # of a program
_OPTIONS = ("mode", "align_corners", "scale_h", "scale_w")
_MODES = ("nearest", "nearest_exact", "linear", "cubic")
_MOST_SOURCES = 2**31
_PANEL = tl.constexpr(512)  # results


class Axis(NamedTuple):
    """One side of the images; scale in bits of a double, None where places are as extents say."""

    sources: int
    results: int
    scale: Any


class Taps(NamedTuple):
    """The elements of each result: `count` of them from `first` on, and what they weigh."""

    first: tl.tensor
    count: tl.tensor
    w0: tl.tensor
    w1: tl.tensor
    w2: tl.tensor
    w3: tl.tensor


@triton.jit
def _clamped(axis, index):
    return tl.minimum(tl.maximum(index, 0), axis.sources - 1)


@triton.jit
def _scaled_place(axis, result, NEAREST: tl.constexpr, FROM_EDGE: tl.constexpr):
    number = result.to(tl.float64)
    at = (number if FROM_EDGE else number + 0.5) / scalar(axis.scale, number)
    if not NEAREST:
        at = at - 0.5
    end = tl.cast(axis.sources, tl.float64)
    at = tl.where(at < end, at, end)  # behind the last element all places are alike
    index = at.to(tl.int64)
    index = tl.where(index.to(tl.float64) > at, index - 1, index)
    after = at - index.to(tl.float64)
    next_one = after == 1.0
    return (
        tl.where(next_one, index + 1, index),
        tl.where(next_one, 0.0, after),
        tl.where(next_one, 1.0, 1.0 - after),
    )


@triton.jit
def _place(axis, result, MODE: tl.constexpr, ALIGNED: tl.constexpr):
    """An index, and how far behind it and before the next a result lies: see formula.h."""
    NEAREST: tl.constexpr = MODE == "nearest" or MODE == "nearest_exact"
    if axis.scale is not None:
        index, after, before = _scaled_place(axis, result, NEAREST, MODE == "nearest")
    else:
        whole = tl.zeros_like(result) + axis.results
        if ALIGNED:
            part = result * (axis.sources - 1)
            whole = tl.maximum(whole - 1, 1)
        elif MODE == "nearest":
            part = result * axis.sources
        else:
            part = (2 * result + 1) * axis.sources
            if not NEAREST:
                part = part - axis.results
            whole = 2 * whole
        # None is less than -whole.
        index = (part + whole) // whole - 1
        rest = part - index * whole
        after = rest.to(tl.float64) / whole.to(tl.float64)
        before = (whole - rest).to(tl.float64) / whole.to(tl.float64)
    return index, after, before


@triton.jit
def _weight(axis, weights, begin, first, k: tl.constexpr, TAPS: tl.constexpr):
    """What the elements weigh that are the one at a distance from the first."""
    total = tl.zeros_like(weights[0])
    for i in tl.static_range(TAPS):
        total = tl.where(_clamped(axis, begin + i) - first == k, total + weights[i], total)
    return total


@triton.jit
def _taps(axis, result, like, MODE: tl.constexpr, ALIGNED: tl.constexpr):
    index, after, before = _place(axis, result, MODE, ALIGNED)
    LEFT: tl.constexpr = 1 if MODE == "cubic" else 0
    TAPS: tl.constexpr = 4 if MODE == "cubic" else 2
    one, zero = tl.zeros_like(like) + 1.0, tl.zeros_like(like)
    first, count = _clamped(axis, index), tl.zeros_like(index) + 1
    w0, w1, w2, w3 = one, zero, zero, zero
    if MODE == "linear" or MODE == "cubic":
        begin = index - LEFT
        from_here = _clamped(axis, begin)
        seen = _clamped(axis, begin + (TAPS - 1)) - from_here + 1
        whole = after == 0.0
        single = whole | (seen == 1)
        first = tl.where(whole, first, from_here)
        count = tl.where(single, 1, seen)
        if MODE == "linear":
            weights = before, after
        else:
            a, b = after, before
            weights = (
                a * -0.75 * b * b,
                b * (a * (1.0 - a * 1.25) + 1.0),
                a * (b * (1.0 - b * 1.25) + 1.0),
                a * -0.75 * a * b,
            )
        w0 = _weight(axis, weights, begin, from_here, 0, TAPS).to(like.dtype)
        w0 = tl.where(single, one, w0)
        w1 = _weight(axis, weights, begin, from_here, 1, TAPS).to(like.dtype)
        if MODE == "cubic":
            w2 = _weight(axis, weights, begin, from_here, 2, TAPS).to(like.dtype)
            w3 = _weight(axis, weights, begin, from_here, 3, TAPS).to(like.dtype)
    return Taps(first, count, w0, w1, w2, w3)


@triton.jit
def _added(total, weight, value, i: tl.constexpr, count):
    """The first product is rounded, and each further one added by fma."""
    more = tl.where(i < count, tl.fma(weight, value, total), total)
    return weight * value if i == 0 else more


@triton.jit
def _line(x, image, channel, row, across, there, TAPS: tl.constexpr):
    """A row of elements and their weights."""
    weights = across.w0, across.w1, across.w2, across.w3
    total = across.w0
    for j in tl.static_range(TAPS):
        at = at_place(x, image, channel, row, across.first + j)
        value = widened(x.data, at, there & (j < across.count))
        total = _added(total, weights[j], value, j, across.count)
    return total


@triton.jit
def _forward(
    x,
    y,
    h,
    w,
    channels,
    count,
    MODE: tl.constexpr,
    ALIGNED: tl.constexpr,
    TAPS: tl.constexpr,
    LANES: tl.constexpr,
):
    """Results, one a lane."""
    number = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    inside = number < count
    image, channel, row, col = places(number, channels, h.results, w.results)
    like = widened(x.data, number * 0, inside & False)
    down, across = _taps(h, row, like, MODE, ALIGNED), _taps(w, col, like, MODE, ALIGNED)
    weights = down.w0, down.w1, down.w2, down.w3
    total = like
    for i in tl.static_range(TAPS):
        there = inside & (i < down.count)
        line = _line(x, image, channel, down.first + i, across, there, TAPS)
        total = _added(total, weights[i], line, i, down.count)
    store(y.data, at_place(y, image, channel, row, col), total, inside)


@triton.jit
def _first_of(
    axis,
    source,
    distance: tl.constexpr,
    turns,
    BEYOND: tl.constexpr,
    MODE: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """The first result whose element at a distance from its index is the source or behind it; with
    BEYOND behind it. turns: what bisection of all results takes."""
    low, high = tl.zeros_like(source), tl.zeros_like(source) + axis.results
    for _ in range(turns):
        middle = (low + high) // 2
        index, _, _ = _place(axis, middle, MODE, ALIGNED)
        element = _clamped(axis, index + distance)
        found = element > source if BEYOND else element >= source
        searching = low < high
        high = tl.where(searching & found, middle, high)
        low = tl.where(searching & (found == 0), middle + 1, low)
    return low


@triton.jit
def _reaching(axis, source, turns, MODE: tl.constexpr, ALIGNED: tl.constexpr):
    """The first result that may have a part of an element, and how many may."""
    LEFT: tl.constexpr = 1 if MODE == "cubic" else 0
    RIGHT: tl.constexpr = 2 if MODE == "cubic" else 1 if MODE == "linear" else 0
    begin = _first_of(axis, source, RIGHT, turns, False, MODE, ALIGNED)
    return begin, _first_of(axis, source, -LEFT, turns, True, MODE, ALIGNED) - begin


@triton.jit
def _weighs(axis, result, source, like, MODE: tl.constexpr, ALIGNED: tl.constexpr):
    """Whether a result has an element, and what it then weighs."""
    taps = _taps(axis, result, like, MODE, ALIGNED)
    at = source - taps.first
    behind = tl.where(at == 1, taps.w1, tl.where(at == 2, taps.w2, taps.w3))
    return (at >= 0) & (at < taps.count), tl.where(at == 0, taps.w0, behind)


@triton.jit
def _summed(total, part, result, weight, value, there):
    """A product with its result, of which one follows the other: those of a panel from +0, and the
    panels from +0."""
    begins = result % _PANEL == 0
    total = tl.where(begins, total + part, total)
    part = tl.where(begins, 0.0, part)
    return total, tl.where(there, tl.fma(weight, value, part), part)


@triton.jit
def _backward(
    grad_y,
    grad_x,
    h,
    w,
    channels,
    count,
    turns_h,
    turns_w,
    MODE: tl.constexpr,
    ALIGNED: tl.constexpr,
    LANES: tl.constexpr,
):
    """Elements of x, one a lane, which gather from their results."""
    number = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    inside = number < count
    image, channel, row, col = places(number, channels, h.sources, w.sources)
    begin_h, count_h = _reaching(h, row, turns_h, MODE, ALIGNED)
    begin_w, count_w = _reaching(w, col, turns_w, MODE, ALIGNED)
    zero = widened(grad_y.data, number * 0, inside & False)
    total, part = zero, zero
    for i in range(tl.max(tl.where(inside, count_h, 0))):
        has_row, of_row = _weighs(h, begin_h + i, row, zero, MODE, ALIGNED)
        there_h = inside & (i < count_h) & has_row
        line, of_line = zero, zero
        for j in range(tl.max(tl.where(there_h, count_w, 0))):
            has_col, of_col = _weighs(w, begin_w + j, col, zero, MODE, ALIGNED)
            there = there_h & (j < count_w) & has_col
            at = at_place(grad_y, image, channel, begin_h + i, begin_w + j)
            value = widened(grad_y.data, at, there)
            line, of_line = _summed(line, of_line, begin_w + j, of_col, value, there)
        line += of_line
        total, part = _summed(total, part, begin_h + i, of_row, line, there_h)
    store(grad_x.data, at_place(grad_x, image, channel, row, col), total + part, inside)


def _axis(side, x, y, aligned, scale):
    dim = 2 if side == "h" else 3
    sources, results = x.shape[dim], y.shape[dim]
    for extent in (sources, results):
        if not 1 <= extent < _MOST_SOURCES:
            raise ValueError(f"interpolate: a side has {extent} elements; allowed: 1 to 2^31 - 1")
    if not (0 <= scale < math.inf):
        raise ValueError(f"interpolate: scale_{side} is {scale}; must be finite, not negative")
    if scale and aligned:
        raise ValueError(f"interpolate: scale_{side} is {scale}; must be 0 beside align_corners")
    return Axis(sources, results, bits_of(scale, torch.float64) if scale else None)


def _call(plan, mode="nearest", align_corners="no", scale_h=0.0, scale_w=0.0, **arrays):
    backward = "grad_x" in arrays
    names = ("grad_x", "grad_y") if backward else ("x", "y")
    x, y = (arrays[name] for name in names)
    if mode not in _MODES:
        raise ValueError(f"interpolate: mode is {mode!r}; allowed: {', '.join(_MODES)}")
    if align_corners not in ("no", "yes"):
        raise ValueError(f"interpolate: align_corners is {align_corners!r}; allowed: no, yes")
    if y.dtype != x.dtype:
        raise ValueError(f"interpolate: {names[1]} is {y.dtype}; must be {x.dtype}, as {names[0]}")
    aligned = align_corners == "yes"
    if aligned and mode in ("nearest", "nearest_exact"):
        raise ValueError(f"interpolate: align_corners belongs to linear and cubic, not to {mode}")
    scales = {"h": float(scale_h), "w": float(scale_w)}
    h, w = (_axis(side, x, y, aligned, scale) for side, scale in scales.items())
    arguments = {name: images_of(array) for name, array in zip(names, (x, y), strict=True)}
    arguments |= {"h": h, "w": w, "channels": x.shape[1], "MODE": mode, "ALIGNED": aligned}
    count = x.numel() if backward else y.numel()
    arguments |= {"count": count, "LANES": _LANES}
    if backward:
        arguments |= {f"turns_{side}": y.shape[2 + i].bit_length() for i, side in enumerate("hw")}
    else:
        arguments["TAPS"] = {"linear": 2, "cubic": 4}.get(mode, 1)
    kernel = _backward if backward else _forward
    yield Launch(kernel, (parts(count, _LANES),), arguments, plan["warps"])


VARIANTS = by_name(
    Variant(
        name="gather",
        kinds=("fwd", "bwd"),
        takes=frozenset({"x", "y", "grad_y", "grad_x", *_OPTIONS}),
        make=_call,
        knobs={"warps": (1, 2, 4, 8)},
        choose=lambda case: {"warps": 4},
        any_strides=True,
        fits=fitting("interpolate", batch_rank=1),
    ),
)
