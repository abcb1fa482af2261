# SPDX-License-Identifier: Apache-2.0
"""Sums over windows in Triton, of images of any strides, in the order of core/order.h: results of
forward, and gradients of x, whose windows lie in the gradient of y."""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from isobit.ops.matmul.triton_products import (
    PANEL,
    RUN,
    Array,
    adding,
    finish,
    levels_for,
    push,
    total_of,
)
from isobit.ops.triton_variants import Launch, parts, widened


class Images(NamedTuple):
    """Elements from one image, channel, row and column to the next."""

    data: Any
    n: int
    c: int
    h: int
    w: int


class Weights(NamedTuple):
    """Elements from one group, channel of results, channel of sources and tap to the next."""

    data: Any
    group: int
    out: int
    c: int
    h: int
    w: int


class Axis(NamedTuple):
    """One dimension of the windows. The source is x; or, of the gradient of x, whose index is then
    the result's, the gradient of y."""

    results: int
    sources: int
    taps: int
    stride: int
    dilation: int
    padding: int
    padding_end: int


@triton.jit
def represented(index, count, MODE: tl.constexpr):
    """The element that stands for one beyond the edge."""
    if MODE == "reflect":
        index = tl.where(index < 0, -index, index)
        index = tl.where(index >= count, 2 * (count - 1) - index, index)
    elif MODE == "replicate":
        index = tl.maximum(tl.minimum(index, count - 1), 0)
    elif MODE == "circular":
        index = tl.where(index < 0, index + count, index)
        index = tl.where(index >= count, index - count, index)
    return index


@triton.jit
def place(axis, result, tap, MODE: tl.constexpr, GRADIENT: tl.constexpr):
    """Where a tap of a window sees its source, and whether it does."""
    if GRADIENT:
        from_tap = result + axis.padding - tap * axis.dilation
        index = from_tap // axis.stride
        there = (from_tap >= 0) & (index * axis.stride == from_tap)
    else:
        index = result * axis.stride + tap * axis.dilation - axis.padding
        index = represented(index, axis.sources, MODE)
        there = index >= 0
    return index, there & (index < axis.sources)


@triton.jit
def _run(
    total,
    begin,
    end,
    images,
    filters,
    source,
    weight,
    h,
    w,
    ins,
    row,
    col,
    inside,
    inside_filters,
    MODE: tl.constexpr,
    GRADIENT: tl.constexpr,
):
    """Adds a run, from k = begin, of all windows that begin at (row, col), times filters.

    A tap beyond the edge is a factor of +0; of a gradient, one that does not land is absent, though
    it keeps its k.
    """
    for panel in range(begin, end, PANEL):
        last = tl.minimum(panel + PANEL, end)
        chain = tl.zeros_like(total)
        for tap in range(panel // ins, (last + ins - 1) // ins):
            i = tap // w.taps
            j = tap - i * w.taps
            from_h, there_h = place(h, row, i, MODE, GRADIENT)
            from_w, there_w = place(w, col, j, MODE, GRADIENT)
            there = inside & there_h & there_w
            seen = images + (from_h * source.h + from_w * source.w)
            of_tap = filters + (i * weight.h + j * weight.w)
            first = tap * ins
            for c in range(tl.maximum(panel - first, 0), tl.minimum(last - first, ins)):
                value = widened(seen, c * source.c, there)
                factor = widened(of_tap, c * weight.c, inside_filters)
                added = tl.fma(value, factor, chain)
                chain = tl.where(there, added, chain) if GRADIENT else added
        total = total + chain
    return total


@triton.jit
def _window(
    images,
    filters,
    source,
    weight,
    h,
    w,
    ins,
    k,
    runs,
    row,
    col,
    inside,
    MODE: tl.constexpr,
    GRADIENT: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The whole sums of windows, each with its filter."""
    real: tl.constexpr = tl.float64 if source.data.dtype.element_ty == tl.float64 else tl.float32
    nodes = tl.zeros([LEVELS, BLOCK], real)
    for run in range(0, runs):
        begin = tl.full([], run, tl.int64) * RUN
        total = _run(
            *(tl.zeros([BLOCK], real), begin, tl.minimum(begin + RUN, k)),
            *(images, filters, source, weight, h, w, ins, row, col, inside, inside),
            *(MODE, GRADIENT),
        )
        nodes = push(nodes, total, run)
    return total_of(nodes, runs)


@triton.jit
def _image(axis, index, step, MODE: tl.constexpr):
    """An element of the padding that stands for this one, before it where `step` is negative, and
    whether there is one."""
    first, last = -axis.padding, axis.results + axis.padding_end - 1
    if MODE == "reflect":
        other = tl.where(step < 0, -index, 2 * (axis.results - 1) - index)
        there = tl.where(step < 0, index > 0, index < axis.results - 1)
    elif MODE == "circular":
        other = index + step * axis.results
        there = index == index
    else:
        other = tl.where(step < 0, step, axis.results - 1 + step)
        there = index == tl.where(step < 0, 0, axis.results - 1)
    there = (step == 0) | (there & (other >= first) & (other <= last))
    return tl.where(step == 0, index, other), there


@triton.jit
def _elements(
    source,
    weight,
    bias,
    residual,
    y,
    pre,
    extents,
    h,
    w,
    ins,
    outs,
    channels,
    k,
    runs,
    count,
    steps,
    ACTIVATION: tl.constexpr,
    MODE: tl.constexpr,
    GRADIENT: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A result a lane, straight from memory. `steps`: of the gradient of what is padded with its
    own elements, how many of the padding, before and behind, may stand for one."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    line = at // w.results
    col = at - line * w.results
    plane = line // h.results
    row = line - plane * h.results
    n = plane // channels
    channel = plane - n * channels
    group = channel // outs
    images = source.data + (n * source.n + group * ins * source.c)
    filters = weight.data + (group * weight.group + (channel - group * outs) * weight.out)
    if GRADIENT and MODE != "zeros":
        total = tl.zeros(
            [BLOCK], tl.float64 if y.data.dtype.element_ty == tl.float64 else tl.float32
        )
        for up in range(steps[0], steps[1]):
            of_row, there_h = _image(h, row, up, MODE)
            for left in range(steps[2], steps[3]):
                of_col, there_w = _image(w, col, left, MODE)
                there = inside & there_h & there_w
                total += _window(
                    *(images, filters, source, weight, h, w, ins, k, runs),
                    *(of_row, of_col, there, MODE, GRADIENT, LEVELS, BLOCK),
                )
    else:
        total = _window(
            *(images, filters, source, weight, h, w, ins, k, runs),
            *(row, col, inside, MODE, GRADIENT, LEVELS, BLOCK),
        )
    finish(
        *(total, bias, None, residual, y, pre, extents, n * h.results + row),
        *(col, channel, inside, None, None, ACTIVATION),
    )


@triton.jit
def _tiles(
    source,
    weight,
    bias,
    residual,
    y,
    pre,
    sums,
    extents,
    h,
    w,
    ins,
    outs,
    groups,
    k,
    runs,
    count,
    down,
    across,
    ACTIVATION: tl.constexpr,
    MODE: tl.constexpr,
    GRADIENT: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """Some channels of a group at some places, and a run of their k a program. Each element that a
    window sees is read once for all of these channels. Where there are several runs, their sums
    wait in `sums`."""
    index = tl.program_id(0).to(tl.int64)
    line = index // across
    of_run = line // down
    group = of_run // runs
    run = of_run - group * runs
    out = (line - of_run * down) * ROWS + tl.arange(0, DOWN)[None, None, :, None]
    out += tl.arange(0, ROWS // DOWN)[:, None, None, None] * DOWN
    at = (index - line * across) * COLS + tl.arange(0, ACROSS)[None, None, None, :]
    at += tl.arange(0, COLS // ACROSS)[None, :, None, None] * ACROSS
    inside, inside_filters = at < count, out < outs
    line = at // w.results
    col = at - line * w.results
    n = line // h.results
    row = line - n * h.results
    images = source.data + (n * source.n + group * ins * source.c)
    filters = weight.data + (group * weight.group + out * weight.out)
    real: tl.constexpr = tl.float64 if source.data.dtype.element_ty == tl.float64 else tl.float32
    begin = run * RUN
    total = _run(
        tl.zeros([ROWS // DOWN, COLS // ACROSS, DOWN, ACROSS], real),
        *(begin, tl.minimum(begin + RUN, k), images, filters, source, weight, h, w, ins),
        *(row, col, inside, inside_filters, MODE, GRADIENT),
    )
    channel = group * outs + out
    inside = inside & inside_filters
    if sums is None:
        finish(
            *(total, bias, None, residual, y, pre, extents, line),
            *(col, channel, inside, None, None, ACTIVATION),
        )
    else:
        to = ((line * runs + run) * w.results + col) * (groups * outs) + channel
        tl.store(sums + to, total, mask=inside)


def in_rows(tensor):
    """An array of images, whose rows are lines of one."""
    n, c, h, w = tensor.stride()
    return Array(tensor, w, c, (h, n))


def windows(
    tiled,
    plan,
    source,
    weight,
    result,
    h,
    w,
    ins,
    outs,
    groups,
    bias=None,
    residual=None,
    pre=None,
    activation="none",
    mode="zeros",
    gradient=False,
):
    """The launches that fill an array of results, tile by tile or one by one."""
    batch, channels = result.shape[:2]
    k = h.taps * w.taps * ins
    runs = max(parts(k, RUN.value), 1)
    given = {"residual": residual, "y": result, "pre": pre}
    arrays = {name: None if each is None else in_rows(each) for name, each in given.items()}
    arrays["bias"] = None if bias is None else Array(bias, 0, bias.stride(0), (0, 0))
    arrays |= {"extents": (h.results, batch), "ACTIVATION": activation}
    arguments = {"source": Images(source, *source.stride()), "weight": weight, **arrays}
    arguments |= {"h": h, "w": w, "ins": ins, "outs": outs, "k": k, "runs": runs}
    arguments |= {"MODE": mode, "GRADIENT": gradient}
    if not tiled:
        block = 32 * plan["warps"]
        arguments |= {"channels": channels, "count": result.numel(), "BLOCK": block}
        arguments |= {"steps": (*_steps(h, mode), *_steps(w, mode)), "LEVELS": levels_for(runs)}
        yield Launch(_elements, (parts(result.numel(), block),), arguments, plan["warps"])
        return
    count = batch * h.results * w.results
    down, across = parts(outs, plan["channels"]), parts(count, plan["places"])
    sums = None
    if runs > 1:
        wide = source.dtype if source.itemsize > 4 else torch.float32
        sums = source.new_empty(runs * result.numel(), dtype=wide)
    arguments |= {"sums": sums, "groups": groups, "count": count, "down": down, "across": across}
    arguments |= {"ROWS": plan["channels"], "COLS": plan["places"]}
    arguments |= {"DOWN": 2 * plan["warps"], "ACROSS": 16}
    yield Launch(_tiles, (groups * runs * down * across,), arguments, plan["warps"])
    if runs > 1:
        arrays |= {"c": None, "alpha": None, "beta": None, "m": w.results, "n": channels}
        yield adding(sums, batch * h.results, runs, arrays)


def _steps(axis, mode):
    """From which to which element of the padding one may be represented, itself being 0."""
    if mode == "replicate":
        return -axis.padding, axis.padding_end + 1
    return -min(axis.padding, 1), min(axis.padding_end, 1) + 1
