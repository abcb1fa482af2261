# SPDX-License-Identifier: Apache-2.0
"""The backward pass of norms in Triton: all in one sweep over runs of rows, or rows first."""

import triton
import triton.language as tl

from isobit.ops.triton_norm_rows import (
    BLOCK,
    Source,
    Statistics,
    columns,
    load,
    minus_product,
    normalised,
    sum_and_dot,
)
from isobit.ops.triton_sums import RUN, pairs
from isobit.ops.triton_variants import store, widened

# So many of a row's statistics normalise its elements.
KEPT, KEPT_WITHOUT_MEAN = tl.constexpr(6), tl.constexpr(3)


@triton.jit
def one_pass_kernel(
    x,
    grad_y,
    weight,
    mean,
    rstd,
    grad_x,
    weight_sums,
    bias_sums,
    rows,
    cols,
    eps,
    statistics_of: tl.constexpr,
    tile: tl.constexpr,
):
    """A program takes a run of rows and keeps its sums of columns in registers."""
    run = tl.program_id(0).to(tl.int64)
    at = columns(0, tile)
    inside = at < cols
    weight_sum = tl.full(at.shape, 0, tl.float32)
    bias_sum = tl.full(at.shape, 0, tl.float32)
    for row in range(run * RUN, tl.minimum(run * RUN + RUN, rows)):
        source = Source(x + row * cols, grad_y + row * cols, weight, None, None)
        held = load(source, at, inside)
        found = _statistics(statistics_of, row, held, source, mean, rstd, cols, eps, tile)
        if grad_x is not None:
            _write_gradient(found, held, source, grad_x + row * cols, cols, tile)
        weight_sum = tl.fma(held.grad_y, normalised(found, held.x), weight_sum)
        bias_sum += held.grad_y
    if weight_sums is not None:
        store(weight_sums + run * cols, at, weight_sum, inside)
    if bias_sums is not None:
        store(bias_sums + run * cols, at, bias_sum, inside)


@triton.jit
def rows_kernel(
    x,
    grad_y,
    weight,
    mean,
    rstd,
    grad_x,
    statistics,
    cols,
    eps,
    statistics_of: tl.constexpr,
    kept: tl.constexpr,
    tile: tl.constexpr,
):
    """A program takes a row: its gradient, and its statistics for the columns that come later."""
    row = tl.program_id(0).to(tl.int64)
    source = Source(x + row * cols, grad_y + row * cols, weight, None, None)
    at = columns(0, tile)
    held = load(source, at, at < cols)
    found = _statistics(statistics_of, row, held, source, mean, rstd, cols, eps, tile)
    if grad_x is not None:
        _write_gradient(found, held, source, grad_x + row * cols, cols, tile)
    if statistics is not None:
        for i in tl.static_range(kept):
            tl.store(statistics + row * kept + i, found[i])


@triton.jit
def columns_kernel(
    x,
    grad_y,
    statistics,
    weight_sums,
    bias_sums,
    rows,
    cols,
    kept: tl.constexpr,
    RUNS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A program takes some columns of some runs, a row of each run at a time."""
    group = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    first = (group * RUNS + tl.arange(0, RUNS)[:, None]) * RUN
    weight_sum = tl.full([RUNS, COLUMNS], 0, tl.float32)
    bias_sum = tl.full([RUNS, COLUMNS], 0, tl.float32)
    for step in range(RUN):
        row = first + step
        exists = row < rows
        inside = exists & (at < cols)
        dy = widened(grad_y, row * cols + at, inside)
        if weight_sums is not None:
            found = _kept_statistics(statistics, row, exists, kept)
            xhat = normalised(found, widened(x, row * cols + at, inside))
            weight_sum = tl.where(inside, tl.fma(dy, xhat, weight_sum), weight_sum)
        bias_sum += dy
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    if weight_sums is not None:
        store(weight_sums + group * cols, at, pairs(weight_sum), at < cols)
    if bias_sums is not None:
        store(bias_sums + group * cols, at, pairs(bias_sum), at < cols)


@triton.jit
def _statistics(
    statistics_of: tl.constexpr, row, held, source, mean, rstd, cols, eps, tile: tl.constexpr
):
    """Those that the caller gives, or those of x."""
    one, zero = tl.cast(1.0, tl.float32), tl.cast(0.0, tl.float32)
    if rstd is None:
        found = statistics_of(held, source, cols, eps, tile)
    elif mean is None:
        given = tl.load(rstd + row)
        found = Statistics(given, one, one, None, None, None, None, given)
    else:
        given, given_mean = tl.load(rstd + row), tl.load(mean + row)
        found = Statistics(given, one, one, given_mean, zero, zero, given_mean, given)
    return found


@triton.jit
def _kept_statistics(statistics, row, exists, kept: tl.constexpr):
    found = statistics + row * kept
    rstd = tl.load(found, exists, 0)
    factor, again = tl.load(found + 1, exists, 0), tl.load(found + 2, exists, 0)
    if kept == KEPT:
        mean, shift = tl.load(found + 3, exists, 0), tl.load(found + 4, exists, 0)
        residue = tl.load(found + 5, exists, 0)
        row_statistics = Statistics(rstd, factor, again, mean, shift, residue, mean, rstd)
    else:
        row_statistics = Statistics(rstd, factor, again, None, None, None, None, rstd)
    return row_statistics


@triton.jit
def _gradient_terms(row, elements, inside):
    g = elements.grad_y * elements.weight
    return g, tl.where(inside, normalised(row, elements.x), 0.0)


@triton.jit
def _write_gradient(row, held, source, grad_x, cols, tile: tl.constexpr):
    n = tl.cast(cols, tl.float32)
    sum_g, dot = sum_and_dot(_gradient_terms, row, held, source, cols, tile)
    mean_g, mean_gx = tl.div_rn(sum_g, n), tl.div_rn(dot, n)
    if tile.chunks == 1:
        at = columns(0, tile)
        store(grad_x, at, _gradient(row, held, mean_g, mean_gx), at < cols)
    else:
        for chunk in range(tl.cdiv(cols, tile.blocks * BLOCK)):
            at = columns(chunk, tile)
            elements = load(source, at, at < cols)
            store(grad_x, at, _gradient(row, elements, mean_g, mean_gx), at < cols)


@triton.jit
def _gradient(row, elements, mean_g, mean_gx):
    g, xhat = elements.grad_y * elements.weight, normalised(row, elements.x)
    if row.mean is not None:
        g -= mean_g
    value = row.rstd * minus_product(xhat, mean_gx, g)
    return value * row.factor * row.factor_again
