# SPDX-License-Identifier: Apache-2.0
"""Attention forward in Triton: some queries of a head and a run of their keys a program, panel
after panel. Where there are several runs, their parts become one by adjacent pairs.

tl.dot promises no order, so products are added one after the other.
"""

import torch
import triton
import triton.language as tl

from isobit.ops.attention.triton_scores import (
    INFINITY,
    PANEL,
    RUN,
    array_of,
    base_of,
    chains,
    columns_of,
    common_of,
    exponents,
    factors,
    folded,
    halves,
    held,
    inverse_of,
    largest,
    leave,
    logarithm,
    place_of,
    room_of,
    start,
    taken,
    weights,
)
from isobit.ops.triton_variants import Launch, parts, store, widened


@triton.jit
def _finish(most, total, sums, y, lse, max, sum, batch, head, row, col, inside, inside_y):
    at = row * y.row + col * y.col
    store(start(y, batch, head), at, tl.fma(sums, inverse_of(most, total), 0.0), inside_y)
    if lse is not None:
        store(start(lse, batch, head), row * lse.row, logarithm(most, total), inside)
    if max is not None:
        store(start(max, batch, head), row * max.row, most + (total - total), inside)
    if sum is not None:
        store(start(sum, batch, head), row * sum.row, total, inside)


@triton.jit
def _tiles(
    q,
    k,
    v,
    bias,
    mask,
    slopes,
    key_begin,
    key_end,
    y,
    lse,
    max,
    sum,
    states,
    room,
    heads,
    group,
    seq_q,
    seq_k,
    head_dim,
    value_dim,
    tiles,
    runs,
    band,
    scaling,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Where there are several runs, what is known of one waits in `states`: its largest exponent,
    its weights' sum, and those of weights times v."""
    index, run, of_head, batch, head, first = place_of(heads, tiles, runs, ROWS)
    row = first + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, COLS)[None, :]
    inside, inside_v = row < seq_q, col < value_dim
    place = tl.arange(0, PANEL)[None, :]
    queries = start(q, batch, head) + row * q.row
    keys, values = start(k, batch, head // group), start(v, batch, head // group) + col * v.col
    room += index * (ROWS * PANEL)
    at_row = tl.arange(0, ROWS)[:, None]

    most = tl.full([ROWS, 1], -INFINITY, tl.float32)
    total = tl.zeros([ROWS, 1], tl.float32)
    sums = tl.zeros([ROWS, COLS], tl.float32)
    held_begin, held_end = held(key_begin, key_end, batch, seq_k)
    begin = tl.maximum(first + band.low - held_begin, run * (RUN * PANEL)) // PANEL * PANEL
    begin += held_begin
    end = tl.minimum(held_begin + (run + 1) * (RUN * PANEL), held_end)
    end = tl.minimum(end, tl.minimum(first + ROWS, seq_q) + band.high)
    for panel in range(begin, end, PANEL):
        key = panel + place
        product = chains(
            *(
                queries,
                q.col,
                inside,
                keys + key * k.row,
                k.col,
                key < held_end,
                head_dim,
                ROWS,
                PANEL,
            )
        )
        exponent = exponents(
            *(product, bias, mask, slopes, batch, head, row, key),
            *(inside & (key < held_end), band, scaling),
        )
        top = largest(exponent)
        weight = weights(exponent, base_of(top))
        tl.debug_barrier()  # until the panel before is taken
        leave(room, place * ROWS + at_row, weight, exponent)
        tl.debug_barrier()
        of_panel, count = values + panel * v.row, tl.minimum(end - panel, PANEL)
        part = taken(room + at_row, ROWS, of_panel, v.row, inside_v, count, sums)
        most, of_all, of_part = factors(most, top)
        total = folded(total, of_all, halves(weight), of_part)
        sums = folded(sums, of_all, part, of_part)
    if states is None:
        _finish(
            *(most, total, sums, y, lse, max, sum, batch, head, row, col),
            *(inside, inside & inside_v),
        )
    else:
        state = states + ((of_head * seq_q + row) * runs + run) * (value_dim + 2)
        tl.store(state, most, mask=inside)
        tl.store(state + 1, total, mask=inside)
        tl.store(state + 2 + col, sums, mask=inside & inside_v)


@triton.jit
def _pairs(
    states,
    joined,
    y,
    lse,
    max,
    sum,
    heads,
    seq_q,
    value_dim,
    tiles,
    count,
    half,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Adjacent states of a query become one. The last is finished, where `joined` is None."""
    _, pair, of_head, batch, head, first = place_of(heads, tiles, half, ROWS)
    row = first + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, COLS)[None, :]
    inside, inside_v = row < seq_q, col < value_dim
    a = states + ((of_head * seq_q + row) * count + 2 * pair) * (value_dim + 2)
    b = a + (value_dim + 2)
    both = inside & (2 * pair + 1 < count)  # nothing beside an odd one changes it
    most, of_a, of_b = factors(
        tl.load(a, mask=inside, other=-INFINITY), tl.load(b, mask=both, other=-INFINITY)
    )
    total = folded(widened(a, 1, inside), of_a, widened(b, 1, both), of_b)
    sums = folded(
        widened(a, 2 + col, inside & inside_v), of_a, widened(b, 2 + col, both & inside_v), of_b
    )
    if joined is None:
        _finish(
            *(most, total, sums, y, lse, max, sum, batch, head, row, col),
            *(inside, inside & inside_v),
        )
    else:
        state = joined + ((of_head * seq_q + row) * half + pair) * (value_dim + 2)
        tl.store(state, most, mask=inside)
        tl.store(state + 1, total, mask=inside)
        tl.store(state + 2 + col, sums, mask=inside & inside_v)


def forward(
    plan,
    q,
    k,
    v,
    y,
    bias=None,
    mask=None,
    lse=None,
    max=None,
    sum=None,
    causal="no",
    window=0,
    scale=0,
    softcap=0,
    slopes=None,
    key_begin=None,
    key_end=None,
):
    optional = {"bias": bias, "mask": mask, "slopes": slopes}
    optional |= {"key_begin": key_begin, "key_end": key_end}
    common = common_of(q, k, v, causal, window, scale, softcap, **optional)
    sizes = ("heads", "seq_q", "value_dim")
    heads, seq_q, value_dim = map(common.get, sizes)
    rows, tiles = plan["rows"], parts(seq_q, plan["rows"])
    runs = parts(common["seq_k"], RUN.value * PANEL.value) or 1
    lines = q.shape[0] * heads * seq_q
    programs = q.shape[0] * heads * tiles
    shape = {name: common[name] for name in sizes} | {"tiles": tiles}
    shape |= {"ROWS": rows, "COLS": columns_of(value_dim)}
    results = {"y": y, "lse": lse, "max": max, "sum": sum}
    results = {name: array_of(tensor) for name, tensor in results.items()}
    states = None
    if runs > 1:
        states = q.new_empty(lines * runs * (value_dim + 2), dtype=torch.float32)
    arguments = {**common, **results, **shape, "states": states, "runs": runs}
    arguments["room"] = room_of(q, programs * runs, rows)
    yield Launch(_tiles, (programs * runs,), arguments, plan["warps"])
    while runs > 1:
        count, runs = runs, parts(runs, 2)
        joined = None
        if runs > 1:
            joined = states.new_empty(lines * runs * (value_dim + 2))
        arguments = {"states": states, "joined": joined, "count": count, "half": runs}
        yield Launch(_pairs, (programs * runs,), {**results, **shape, **arguments}, plan["warps"])
        states = joined
