# SPDX-License-Identifier: Apache-2.0
"""Attention backward in Triton: a program computes the gradients of some queries from a run of
keys, or of some keys from a run of the queries of all heads that share them. Where there are
several runs, their sums are added by adjacent pairs.
"""

import torch
import triton
import triton.language as tl

from isobit.ops.attention.triton_scores import (
    LOWEST,
    PANEL,
    RUN,
    array_of,
    before_cap,
    bits_of,
    chains,
    columns_of,
    common_of,
    exponents,
    halves,
    held,
    inverse_of,
    leave,
    place_of,
    probabilities,
    room_of,
    start,
    taken,
)
from isobit.ops.triton_variants import Launch, parts, scalar, store, widened


@triton.jit
def _means(
    grad_y,
    y,
    grad_lse,
    means,
    heads,
    seq_q,
    value_dim,
    tiles,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """The row order's sum of grad_y times y; COLS are no more than half of one of its blocks."""
    _, _, of_head, batch, head, first = place_of(heads, tiles, 1, ROWS)
    row = first + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, COLS)[None, :]
    inside = (row < seq_q) & (col < value_dim)
    of_grad = widened(start(grad_y, batch, head), row * grad_y.row + col * grad_y.col, inside)
    of_y = widened(start(y, batch, head), row * y.row + col * y.col, inside)
    mean = halves(of_grad * of_y) + 0.0
    if grad_lse is not None:
        at = start(grad_lse, batch, head) + row * grad_lse.row
        mean = mean - tl.load(at, mask=row < seq_q, other=0)
    tl.store(means + of_head * seq_q + row, mean, mask=row < seq_q)


@triton.jit
def _probabilities(exponent, max, sum, batch, head, query, inside):
    most = tl.load(start(max, batch, head) + query * max.row, mask=inside, other=0)
    total = tl.load(start(sum, batch, head) + query * sum.row, mask=inside, other=1)
    return probabilities(exponent, most, inverse_of(most, total))


@triton.jit
def _put(total, array, sums, batch, head, row, col, place, inside, factor):
    """A sum, or where there are several runs what one adds to it."""
    if sums is None:
        at = row * array.row + col * array.col
        store(start(array, batch, head), at, (total + 0.0) * scalar(factor, total), inside)
    else:
        tl.store(sums + place + col, total, mask=inside)


@triton.jit
def _clear(grad_bias, batch, head, row, inside, run, seq_k, held_begin, held_end):
    """Of keys that a sequence does not have, as many as a run has."""
    end = tl.minimum((run + 1) * (RUN * PANEL), seq_k)
    for panel in range(run * (RUN * PANEL), end, PANEL):
        key = panel + tl.arange(0, PANEL)[None, :]
        absent = (key < seq_k) & ((key < held_begin) | (key >= held_end))
        at = row * grad_bias.row + key * grad_bias.col
        zero = tl.zeros([row.shape[0], PANEL], tl.float32)
        store(start(grad_bias, batch, head), at, zero, inside & absent)


@triton.jit
def _of_queries(
    grad_y,
    q,
    k,
    v,
    bias,
    mask,
    slopes,
    key_begin,
    key_end,
    max,
    sum,
    means,
    grad_q,
    grad_bias,
    sums,
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
    index, run, of_head, batch, head, first = place_of(heads, tiles, runs, ROWS)
    row = first + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, COLS)[None, :]
    inside, inside_k = row < seq_q, col < head_dim
    place = tl.arange(0, PANEL)[None, :]
    room += index * (ROWS * PANEL)
    at_row = tl.arange(0, ROWS)[:, None]
    queries, outputs = start(q, batch, head), start(grad_y, batch, head)
    keys, values = start(k, batch, head // group), start(v, batch, head // group)
    mean = tl.load(means + of_head * seq_q + row, mask=inside, other=0)
    total = tl.zeros([ROWS, COLS], tl.float32)
    held_begin, held_end = held(key_begin, key_end, batch, seq_k)
    begin = run * (RUN * PANEL) + held_begin
    end = tl.minimum(begin + RUN * PANEL, held_end)
    if grad_bias is None:  # which is zero where nothing is seen
        begin = tl.maximum(begin, first + band.low) - held_begin
        begin = held_begin + begin // PANEL * PANEL
        end = tl.minimum(end, tl.minimum(first + ROWS, seq_q) + band.high)
    elif (key_begin is not None) or (key_end is not None):
        _clear(grad_bias, batch, head, row, inside, run, seq_k, held_begin, held_end)
    for panel in range(begin, end, PANEL):
        key = panel + place
        there = key < held_end
        product = chains(
            *(queries + row * q.row, q.col, inside),
            *(keys + key * k.row, k.col, there, head_dim, ROWS, PANEL),
        )
        of_weight = chains(
            *(outputs + row * grad_y.row, grad_y.col, inside),
            *(values + key * v.row, v.col, there, value_dim, ROWS, PANEL),
        )
        both = inside & there
        exponent = exponents(
            *(product, bias, mask, slopes, batch, head, row, key, both, band, scaling)
        )
        probability = _probabilities(exponent, max, sum, batch, head, row, inside)
        gradient = probability * (of_weight - mean)
        if grad_bias is not None:
            at = row * grad_bias.row + key * grad_bias.col
            seen = tl.where(exponent < LOWEST, 0.0, gradient)
            store(start(grad_bias, batch, head), at, seen, both)
        if grad_q is not None:
            gradient = before_cap(gradient, product, scaling)
            tl.debug_barrier()  # until the panel before is taken
            leave(room, place * ROWS + at_row, gradient, exponent)
            tl.debug_barrier()
            of_panel, count = keys + panel * k.row + col * k.col, tl.minimum(end - panel, PANEL)
            total += taken(room + at_row, ROWS, of_panel, k.row, inside_k, count, total)
    if grad_q is not None:
        waits = ((of_head * seq_q + row) * runs + run) * head_dim
        _put(
            *(total, grad_q, sums, batch, head, row, col, waits),
            *(inside & inside_k, scaling.gradient),
        )


@triton.jit
def _of_keys(
    grad_y,
    q,
    k,
    v,
    bias,
    mask,
    slopes,
    key_begin,
    key_end,
    max,
    sum,
    means,
    grad_k,
    grad_v,
    sums_k,
    sums_v,
    room,
    heads,
    group,
    kv_heads,
    seq_q,
    seq_k,
    head_dim,
    value_dim,
    tiles,
    runs,
    panels,
    band,
    scaling,
    one,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    VALUES: tl.constexpr,
):
    """`panels` are those of one head's queries."""
    index, run, of_head, batch, kv_head, first = place_of(kv_heads, tiles, runs, ROWS)
    key = first + tl.arange(0, ROWS)[:, None]
    col, value = tl.arange(0, COLS)[None, :], tl.arange(0, VALUES)[None, :]
    held_begin, held_end = held(key_begin, key_end, batch, seq_k)
    there = (key >= held_begin) & (key < held_end)
    inside_k, inside_v = col < head_dim, value < value_dim
    place = tl.arange(0, PANEL)[None, :]
    room += index * (2 * ROWS * PANEL)
    at_row = tl.arange(0, ROWS)[:, None]
    keys = start(k, batch, kv_head) + key * k.row
    values = start(v, batch, kv_head) + key * v.row
    total_k = tl.zeros([ROWS, COLS], tl.float32)
    total_v = tl.zeros([ROWS, VALUES], tl.float32)
    for number in range(run * RUN, tl.minimum((run + 1) * RUN, group * panels)):
        of_group = number // panels
        head = kv_head * group + of_group
        begin = (number - of_group * panels) * PANEL
        end = tl.minimum(begin + PANEL, seq_q)
        # Keys of the tile that the sequence has, and those that these queries may see.
        of_first, of_last = tl.maximum(first, held_begin), tl.minimum(first + ROWS, held_end)
        if (of_first < of_last) & (end + band.high > of_first) & (begin + band.low < of_last):
            query = begin + place
            inside = query < seq_q
            queries, outputs = start(q, batch, head), start(grad_y, batch, head)
            product = chains(
                *(keys, k.col, there),
                *(queries + query * q.row, q.col, inside, head_dim, ROWS, PANEL),
            )
            of_weight = chains(
                *(values, v.col, there),
                *(outputs + query * grad_y.row, grad_y.col, inside, value_dim, ROWS, PANEL),
            )
            exponent = exponents(
                *(product, bias, mask, slopes, batch, head, query, key),
                *(inside & there, band, scaling),
            )
            probability = _probabilities(exponent, max, sum, batch, head, query, inside)
            at = means + (batch * heads + head) * seq_q + query
            gradient = probability * (of_weight - tl.load(at, mask=inside, other=0))
            gradient = before_cap(gradient, product, scaling)
            tl.debug_barrier()  # until the panel before is taken
            leave(room, place * ROWS + at_row, gradient, exponent)
            leave(room + ROWS * PANEL, place * ROWS + at_row, probability, exponent)
            tl.debug_barrier()
            if grad_k is not None:
                of_panel = queries + begin * q.row + col * q.col
                total_k += taken(
                    room + at_row, ROWS, of_panel, q.row, inside_k, end - begin, total_k
                )
            if grad_v is not None:
                of_panel = outputs + begin * grad_y.row + value * grad_y.col
                total_v += taken(
                    *(room + ROWS * PANEL + at_row, ROWS, of_panel, grad_y.row),
                    *(inside_v, end - begin, total_v),
                )
    waits = (of_head * seq_k + key) * runs + run
    if grad_k is not None:
        _put(
            *(total_k, grad_k, sums_k, batch, kv_head, key, col, waits * head_dim),
            *((key < seq_k) & inside_k, scaling.gradient),
        )
    if grad_v is not None:
        _put(
            *(total_v, grad_v, sums_v, batch, kv_head, key, value, waits * value_dim),
            *((key < seq_k) & inside_v, one),
        )


@triton.jit
def _pairs(
    sums,
    joined,
    array,
    heads,
    rows,
    cols,
    tiles,
    count,
    half,
    factor,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Adjacent runs' sums of a row become one. `joined` is None for the last."""
    _, pair, of_head, batch, head, first = place_of(heads, tiles, half, ROWS)
    row = first + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, COLS)[None, :]
    inside = (row < rows) & (col < cols)
    at = ((of_head * rows + row) * count + 2 * pair) * cols + col
    total = widened(sums, at, inside) + widened(sums, at + cols, inside & (2 * pair + 1 < count))
    waits = ((of_head * rows + row) * half + pair) * cols
    _put(total, array, joined, batch, head, row, col, waits, inside, factor)


class _Sums:
    """Of a gradient's runs: the memory where they wait, and what adds them."""

    def __init__(self, gradient, runs, factor, rows, warps):
        self.gradient, self.runs, self.factor, self.warps = gradient, runs, factor, warps
        self.tile = {"ROWS": rows, "COLS": columns_of(gradient.shape[-1])}
        self.waiting = self.memory(runs) if runs > 1 else None

    def memory(self, runs):
        shape = (*self.gradient.shape[:-1], runs, self.gradient.shape[-1])
        return self.gradient.new_empty(shape, dtype=torch.float32)

    def launches(self):
        batch, heads, rows, cols = self.gradient.shape
        tiles, runs, sums = parts(rows, self.tile["ROWS"]), self.runs, self.waiting
        while runs > 1:
            count, runs = runs, parts(runs, 2)
            joined = self.memory(runs) if runs > 1 else None
            arguments = {"sums": sums, "joined": joined, "array": array_of(self.gradient)}
            arguments |= {"heads": heads, "rows": rows, "cols": cols, "tiles": tiles}
            arguments |= {"count": count, "half": runs, "factor": self.factor, **self.tile}
            yield Launch(_pairs, (batch * heads * tiles * runs,), arguments, self.warps)
            sums = joined


def backward(
    plan,
    grad_y,
    q,
    k,
    v,
    y,
    max,
    sum,
    bias=None,
    mask=None,
    grad_lse=None,
    grad_q=None,
    grad_k=None,
    grad_v=None,
    grad_bias=None,
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
    rows, warps, scaling = plan["rows"], plan["warps"], common["scaling"]
    seq_q, seq_k, value_dim = map(common.get, ("seq_q", "seq_k", "value_dim"))
    heads, kv_heads = (each.shape[0] * each.shape[1] for each in (q, k))  # of all batches
    of_q, of_k = parts(seq_q, rows), parts(seq_k, rows)
    common |= {"means": q.new_empty(q.shape[:3], dtype=torch.float32), "ROWS": rows}
    arrays = {"grad_y": grad_y, "y": y, "grad_lse": grad_lse, "max": max, "sum": sum}
    arrays = {name: array_of(tensor) for name, tensor in arrays.items()}
    arguments = {name: arrays[name] for name in ("grad_y", "y", "grad_lse")}
    arguments |= {name: common[name] for name in ("heads", "seq_q", "value_dim", "means", "ROWS")}
    arguments |= {"tiles": of_q, "COLS": columns_of(value_dim)}
    yield Launch(_means, (heads * of_q,), arguments, warps)

    common |= {name: arrays[name] for name in ("grad_y", "max", "sum")}
    common["COLS"] = columns_of(common["head_dim"])
    if grad_q is not None or grad_bias is not None:
        runs = parts(seq_k, RUN.value * PANEL.value) or 1
        sums = None if grad_q is None else _Sums(grad_q, runs, scaling.gradient, rows, warps)
        programs = heads * of_q * runs
        arguments = {"grad_q": array_of(grad_q), "grad_bias": array_of(grad_bias)}
        arguments |= {"sums": sums and sums.waiting, "tiles": of_q, "runs": runs}
        arguments["room"] = room_of(q, programs, rows)
        yield Launch(_of_queries, (programs,), {**common, **arguments}, warps)
        if sums:
            yield from sums.launches()
    if grad_k is not None or grad_v is not None:
        panels = parts(seq_q, PANEL.value)
        runs = parts(common["group"] * panels, RUN.value) or 1
        one = bits_of(1.0)
        sums_k = None if grad_k is None else _Sums(grad_k, runs, scaling.gradient, rows, warps)
        sums_v = None if grad_v is None else _Sums(grad_v, runs, one, rows, warps)
        programs = kv_heads * of_k * runs
        arguments = {"grad_k": array_of(grad_k), "grad_v": array_of(grad_v), "one": one}
        arguments |= {"sums_k": sums_k and sums_k.waiting, "sums_v": sums_v and sums_v.waiting}
        arguments |= {"tiles": of_k, "runs": runs, "panels": panels, "kv_heads": k.shape[1]}
        arguments["room"] = room_of(q, 2 * programs, rows)
        arguments["VALUES"] = columns_of(value_dim)
        yield Launch(_of_keys, (programs,), {**common, **arguments}, warps)
        for sums in (sums_k, sums_v):
            if sums:
                yield from sums.launches()
