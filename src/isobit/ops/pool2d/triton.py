# SPDX-License-Identifier: Apache-2.0
"""pool2d in Triton, forward and backward, of arrays of any strides, with the bits of all other
variants.

    VARIANTS["gather"].run(x=x, y=y, index=index, reduction="max", window_h=3, window_w=3)
    VARIANTS["gather"].run(grad_y=grad_y, index=index, grad_x=grad_x, window_h=3, window_w=3)

A lane takes a result, or an element of grad_x, and gathers what it is made of. No GPU has run these
kernels yet: Triton's interpreter has.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from isobit.ops.triton_images import at_place, images_of, places
from isobit.ops.triton_variants import Launch, Variant, by_name, parts, quotient, store, widened

_PANEL = tl.constexpr(512)  # terms
_INFINITY = tl.constexpr(float("inf"))
_LANES = 256  # of a program


class Axis(NamedTuple):
    """One side of the windows. A side of bins has no taps of its own; `most` is how many a window
    may have, or how many windows may reach over an element."""

    sources: int
    results: int
    taps: int
    stride: int
    dilation: int
    padding: int
    most: int


class Divisor(NamedTuple):
    """What sums are divided by: a number, or where it is None, a count."""

    number: Any


@triton.jit
def _window(axis, result, BINS: tl.constexpr):
    """Where its first tap stands, and how many it has."""
    if BINS:
        first = result * axis.sources // axis.results
        end = ((result + 1) * axis.sources + axis.results - 1) // axis.results
        taps = end - first
    else:
        first = result * axis.stride - axis.padding
        taps = tl.zeros_like(first) + axis.taps
    return first, taps


@triton.jit
def _counted(axis, first, taps, WITH_PADDING: tl.constexpr):
    """What a window without a dilation adds to a count."""
    if WITH_PADDING:
        count = tl.minimum(first + taps, axis.sources + axis.padding) - first
    else:
        count = tl.minimum(first + taps, axis.sources) - tl.maximum(first, 0)
    return count


@triton.jit
def _divided(value, h, w, first_h, taps_h, first_w, taps_w, divisor, WITH_PADDING: tl.constexpr):
    if divisor.number is None:
        count = _counted(h, first_h, taps_h, WITH_PADDING)
        by = count * _counted(w, first_w, taps_w, WITH_PADDING)
    else:
        by = tl.zeros_like(first_h) + divisor.number
    return quotient(value, by.to(value.dtype))


@triton.jit
def _added(total, part, panel, number, value, there):
    """A term with its number: those of a panel from +0, and the panels from +0."""
    moved = there & (number // _PANEL != panel)
    total = tl.where(moved, total + part, total)
    part = tl.where(moved, 0.0, part)
    panel = tl.where(moved, number // _PANEL, panel)
    return total, tl.where(there, part + value, part), panel


@triton.jit
def _forward(
    x,
    y,
    index,
    h,
    w,
    channels,
    count,
    divisor,
    MAX: tl.constexpr,
    BINS_H: tl.constexpr,
    BINS_W: tl.constexpr,
    WITH_PADDING: tl.constexpr,
    LANES: tl.constexpr,
):
    """Windows, one a lane."""
    number = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    inside = number < count
    image, channel, row, col = places(number, channels, h.results, w.results)
    first_h, taps_h = _window(h, row, BINS_H)
    first_w, taps_w = _window(w, col, BINS_W)
    zero = widened(x.data, number * 0, inside & False)
    total, part, panel = zero, zero, number * 0
    largest, place = zero - _INFINITY, number * 0 - 1
    for i in range(h.most):
        r = first_h + i * h.dilation
        there_h = inside & (i < taps_h) & (r >= 0) & (r < h.sources)
        for j in range(w.most):
            c = first_w + j * w.dilation
            there = there_h & (j < taps_w) & (c >= 0) & (c < w.sources)
            value = widened(x.data, at_place(x, image, channel, r, c), there)
            if MAX:
                takes = there & ((place < 0) | (value > largest) | (value != value))
                largest = tl.where(takes, value, largest)
                place = tl.where(takes, r * w.sources + c, place)
            else:
                total, part, panel = _added(total, part, panel, i * taps_w + j, value, there)
    if MAX:
        result = largest
        if index.data is not None:
            tl.store(index.data + at_place(index, image, channel, row, col), place, mask=inside)
    else:
        result = _divided(
            total + part, h, w, first_h, taps_h, first_w, taps_w, divisor, WITH_PADDING
        )
    store(y.data, at_place(y, image, channel, row, col), result, inside)


@triton.jit
def _reaching(axis, source, BINS: tl.constexpr):
    """The first window that reaches over an element, and how many do."""
    if BINS:
        begin = source * axis.results // axis.sources
        end = ((source + 1) * axis.results + axis.sources - 1) // axis.sources
    else:
        place = source + axis.padding
        before = tl.maximum(place - (axis.taps - 1) * axis.dilation, 0)
        begin = tl.minimum((before + axis.stride - 1) // axis.stride, axis.results)
        end = tl.minimum(place // axis.stride + 1, axis.results)
    return begin, end - begin


@triton.jit
def _has(axis, first, taps, source):
    place = source - first
    tap = place // axis.dilation
    return (place >= 0) & (tap * axis.dilation == place) & (tap < taps)


@triton.jit
def _backward(
    grad_y,
    index,
    grad_x,
    h,
    w,
    channels,
    count,
    divisor,
    BINS_H: tl.constexpr,
    BINS_W: tl.constexpr,
    WITH_PADDING: tl.constexpr,
    LANES: tl.constexpr,
):
    """Elements of x, one a lane: of the largest where there is an index."""
    number = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    inside = number < count
    image, channel, row, col = places(number, channels, h.sources, w.sources)
    begin_h, count_h = _reaching(h, row, BINS_H)
    begin_w, count_w = _reaching(w, col, BINS_W)
    zero = widened(grad_y.data, number * 0, inside & False)
    total, part, panel = zero, zero, number * 0
    for i in range(h.most):
        first_h, taps_h = _window(h, begin_h + i, BINS_H)
        there_h = inside & (i < count_h) & _has(h, first_h, taps_h, row)
        for j in range(w.most):
            first_w, taps_w = _window(w, begin_w + j, BINS_W)
            there = there_h & (j < count_w) & _has(w, first_w, taps_w, col)
            if index.data is not None:
                at = at_place(index, image, channel, begin_h + i, begin_w + j)
                place = tl.load(index.data + at, mask=there, other=-1)
                there = there & (place == row * w.sources + col)
            at = at_place(grad_y, image, channel, begin_h + i, begin_w + j)
            value = widened(grad_y.data, at, there)
            if index.data is None:
                value = _divided(
                    value, h, w, first_h, taps_h, first_w, taps_w, divisor, WITH_PADDING
                )
            total, part, panel = _added(total, part, panel, i * count_w + j, value, there)
    store(grad_x.data, at_place(grad_x, image, channel, row, col), total + part, inside)


_NUMBERS = {"window": 0, "bins": 1, "stride": 0, "padding": 0, "dilation": 1}
_SIDES = ("_h", "_w")
_OPTIONS = {name + side for name in _NUMBERS for side in _SIDES}
_OPTIONS |= {"reduction", "ceil_mode", "count_include_pad", "divisor"}


def _axis(side, sources, backward, options):
    window, bins, stride, padding, dilation = (
        int(options.get(name + side, usual)) for name, usual in _NUMBERS.items()
    )
    if window == 0:
        most = bins // sources + 2 if backward else parts(sources, bins) + 1
        return Axis(sources, bins, 1, 1, 1, 0, most)
    stride, span = stride or window, dilation * (window - 1) + 1
    late = options.get("ceil_mode", "no") == "yes"
    room = sources + 2 * padding - span
    results = (room + (stride - 1 if late else 0)) // stride + 1
    if late and (results - 1) * stride >= sources + padding:
        results -= 1
    if min(stride, dilation, results) < 1:
        raise ValueError(f"pool2d: {sources} elements have {results} windows of {window}")
    most = min(results, parts(span, stride)) if backward else window
    return Axis(sources, results, window, stride, dilation, padding, most)


def _call(plan, index=None, **given):
    options = {name: given.pop(name) for name in list(given) if name in _OPTIONS}
    backward = "grad_y" in given
    x, y = (given["grad_x"], given["grad_y"]) if backward else (given["x"], given["y"])
    h, w = (
        _axis(side, sources, backward, options)
        for side, sources in zip(_SIDES, x.shape[2:], strict=True)
    )
    expected = (*x.shape[:2], h.results, w.results)
    for array in (y, index):
        if array is not None and tuple(array.shape) != expected:
            raise ValueError(f"pool2d: {tuple(array.shape)} are no results; must be {expected}")
    largest = options.get("reduction", "max") == "max"
    if backward and largest != (index is not None):
        raise ValueError("pool2d: an index belongs to reduction max")
    divisor = int(options.get("divisor", 0))
    arguments = {"h": h, "w": w, "channels": x.shape[1], "divisor": Divisor(divisor or None)}
    arguments |= {"BINS_H": int(options.get("window_h", 0)) == 0, "LANES": _LANES}
    arguments["BINS_W"] = int(options.get("window_w", 0)) == 0
    arguments["WITH_PADDING"] = options.get("count_include_pad", "no") == "yes"
    arguments |= {name: images_of(array) for name, array in (*given.items(), ("index", index))}
    arguments["count"] = x.numel() if backward else y.numel()
    if not backward:
        arguments["MAX"] = largest
    kernel = _backward if backward else _forward
    yield Launch(kernel, (parts(arguments["count"], _LANES),), arguments, plan["warps"])


VARIANTS = by_name(
    Variant(
        name="gather",
        kinds=("fwd", "bwd"),
        takes=frozenset({"x", "y", "index", "grad_y", "grad_x"} | _OPTIONS),
        make=_call,
        knobs={"warps": (1, 2, 4, 8)},
        choose=lambda case: {"warps": 4},
        any_strides=True,
    ),
)
