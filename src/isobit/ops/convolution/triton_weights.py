# SPDX-License-Identifier: Apache-2.0
"""Gradients of the weights of convolutions in Triton: sums over the places of all windows."""

import torch
import triton
import triton.language as tl

from isobit.ops.convolution.triton_windows import Images, place
from isobit.ops.matmul.triton_products import (
    PANEL,
    RUN,
    Array,
    adding,
    levels_for,
    push,
    start,
    total_of,
)
from isobit.ops.triton_variants import Launch, parts, store, widened


@triton.jit
def _run(
    total,
    begin,
    end,
    gradients,
    images,
    grad,
    source,
    h,
    w,
    i,
    j,
    inside_filters,
    inside_weights,
    MODE: tl.constexpr,
):
    """Adds a run, from place `begin` of all images: the gradient of what a window made, times what
    tap (i, j) of it saw, which is +0 beyond the edge."""
    for panel in range(begin, end, PANEL):
        last = tl.minimum(panel + PANEL, end)
        chain = tl.zeros_like(total)
        for line in range(panel // w.results, (last + w.results - 1) // w.results):
            n = line // h.results
            row = line - n * h.results
            from_h, there_h = place(h, row, i, MODE, False)
            there_h = inside_weights & there_h
            seen = images + (n * source.n + from_h * source.h)
            of_line = gradients + (n * grad.n + row * grad.h)
            first = line * w.results
            for col in range(tl.maximum(panel - first, 0), tl.minimum(last - first, w.results)):
                from_w, there_w = place(w, col, j, MODE, False)
                factor = widened(of_line, col * grad.w, inside_filters)
                value = widened(seen, from_w * source.w, there_h & there_w)
                chain = tl.fma(factor, value, chain)
        total = total + chain
    return total


@triton.jit
def _elements(
    grad,
    source,
    grad_weight,
    extents,
    h,
    w,
    ins,
    outs,
    of_filter,
    places,
    runs,
    count,
    MODE: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A weight a lane."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    filter = at // of_filter
    weight = at - filter * of_filter
    rest = weight // w.taps
    j = weight - rest * w.taps
    c = rest // h.taps
    i = rest - c * h.taps
    gradients = grad.data + filter * grad.c
    images = source.data + (filter // outs * ins + c) * source.c
    real: tl.constexpr = tl.float64 if source.data.dtype.element_ty == tl.float64 else tl.float32
    nodes = tl.zeros([LEVELS, BLOCK], real)
    for run in range(0, runs):
        begin = tl.full([], run, tl.int64) * RUN
        total = _run(
            *(tl.zeros([BLOCK], real), begin, tl.minimum(begin + RUN, places)),
            *(gradients, images, grad, source, h, w, i, j, inside, inside, MODE),
        )
        nodes = push(nodes, total, run)
    to = start(grad_weight, extents, weight)
    store(to, filter * grad_weight.row, total_of(nodes, runs), inside)


@triton.jit
def _tiles(
    grad,
    source,
    grad_weight,
    sums,
    extents,
    h,
    w,
    ins,
    outs,
    of_filter,
    places,
    runs,
    filters,
    down,
    across,
    MODE: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """Some weights of some filters of a group, and a run of the places a program. Where there are
    several runs, their sums wait in `sums`."""
    index = tl.program_id(0).to(tl.int64)
    line = index // across
    of_run = line // down
    group = of_run // runs
    run = of_run - group * runs
    out = (line - of_run * down) * ROWS + tl.arange(0, DOWN)[None, None, :, None]
    out += tl.arange(0, ROWS // DOWN)[:, None, None, None] * DOWN
    weight = (index - line * across) * COLS + tl.arange(0, ACROSS)[None, None, None, :]
    weight += tl.arange(0, COLS // ACROSS)[None, :, None, None] * ACROSS
    inside_filters, inside_weights = out < outs, weight < of_filter
    filter = group * outs + out
    rest = weight // w.taps
    j = weight - rest * w.taps
    c = rest // h.taps
    i = rest - c * h.taps
    real: tl.constexpr = tl.float64 if source.data.dtype.element_ty == tl.float64 else tl.float32
    begin = run * RUN
    total = _run(
        tl.zeros([ROWS // DOWN, COLS // ACROSS, DOWN, ACROSS], real),
        *(begin, tl.minimum(begin + RUN, places)),
        *(grad.data + filter * grad.c, source.data + (group * ins + c) * source.c),
        *(grad, source, h, w, i, j, inside_filters, inside_weights, MODE),
    )
    inside = inside_filters & inside_weights
    if sums is None:
        store(start(grad_weight, extents, weight), filter * grad_weight.row, total, inside)
    else:
        tl.store(sums + ((weight * runs + run) * filters + filter), total, mask=inside)


def weights(tiled, plan, grad_y, x, grad_weight, h, w, groups, mode="zeros"):
    """The launches that fill the gradient of weights, tile by tile or one by one."""
    filters, ins = grad_weight.shape[:2]
    outs, of_filter = filters // groups, ins * h.taps * w.taps
    places = x.shape[0] * h.results * w.results
    runs = max(parts(places, RUN.value), 1)
    f, c, i, j = grad_weight.stride()
    result = Array(grad_weight, f, 0, (j, i, c))
    arguments = {"grad": Images(grad_y, *grad_y.stride()), "source": Images(x, *x.stride())}
    arguments |= {"grad_weight": result, "extents": (w.taps, h.taps, ins), "h": h, "w": w}
    arguments |= {"ins": ins, "outs": outs, "of_filter": of_filter, "places": places}
    arguments |= {"runs": runs, "MODE": mode}
    if not tiled:
        block, count = 32 * plan["warps"], grad_weight.numel()
        arguments |= {"count": count, "BLOCK": block, "LEVELS": levels_for(runs)}
        yield Launch(_elements, (parts(count, block),), arguments, plan["warps"])
        return
    down, across = parts(outs, plan["channels"]), parts(of_filter, plan["places"])
    sums = None
    if runs > 1:
        wide = x.dtype if x.itemsize > 4 else torch.float32
        sums = x.new_empty(runs * grad_weight.numel(), dtype=wide)
    arguments |= {"sums": sums, "filters": filters, "down": down, "across": across}
    arguments |= {"ROWS": plan["channels"], "COLS": plan["places"]}
    arguments |= {"DOWN": 2 * plan["warps"], "ACROSS": 16}
    yield Launch(_tiles, (groups * runs * down * across,), arguments, plan["warps"])
    if runs > 1:
        last = dict.fromkeys(("bias", "c", "residual", "pre", "alpha", "beta"))
        last |= {"y": result, "extents": arguments["extents"], "m": filters, "n": 1}
        yield adding(sums, of_filter, runs, {**last, "ACTIVATION": "none"})
