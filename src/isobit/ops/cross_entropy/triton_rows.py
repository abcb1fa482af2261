# SPDX-License-Identifier: Apache-2.0
"""A row of cross_entropy in Triton, by the arithmetic of formula.h: its loss and its gradient."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from isobit.ops.activation.triton_functions import _minus_product, function_of
from isobit.ops.softmax.triton import Scale, _exponent_of, _log_of, _weight_of
from isobit.ops.triton_norm_rows import BLOCK, columns, scalar, tile_dot, tile_sum
from isobit.ops.triton_sums import RUN, pairs, push, total_of
from isobit.ops.triton_variants import store, widened

_INFINITY, _NAN = tl.constexpr(float("inf")), tl.constexpr(float("nan"))


class Shares(NamedTuple):
    """What the options make of every row; None for what has no part."""

    own: Any
    each: Any
    squared: Any


class Target(NamedTuple):
    """Of a row: its class, whether it counts, whether it is a class, and its weight."""

    at: tl.tensor
    ignored: tl.tensor
    exists: tl.tensor
    weight: tl.tensor


class Factors(NamedTuple):
    """By what a row's gradient is made; by_class is None where classes have no share."""

    by_weight: Any
    by_class: Any
    at_target: Any


@triton.jit
def _target_of(target, weight, row, cols, ignore_index):
    at = tl.load(target + row)
    ignored = at == ignore_index
    exists = (at >= 0) & (at < cols) & (ignored == 0)
    of_class = tl.cast(1.0, tl.float32)
    if weight is not None:
        of_class = tl.load(weight + at, mask=exists, other=0.0)
    value = tl.where(ignored, 0.0, tl.where(exists, of_class, _NAN))
    return Target(at, ignored, exists, value)


@triton.jit
def _plain(x, largest):
    """x - largest, exact in two parts."""
    return _exponent_of(x, largest, Scale(None, None))


@triton.jit
def _weights(weight, at, inside):
    """Of classes, all 1 where they are not given."""
    value = tl.where(inside, 1.0, 0.0)
    if weight is not None:
        value = tl.load(weight + at, mask=inside, other=0.0)
    return value


@triton.jit
def _elements(x, at, inside):
    return tl.where(inside, widened(x, at, inside), -_INFINITY)


@triton.jit
def _largest(x, cols, inside_of, tile: tl.constexpr):
    """Never -0. Whether it sees NaN or passes it over: the sum is NaN."""
    at = columns(0, tile)
    largest = tl.max(_elements(x, at, inside_of & (at < cols)))
    for chunk in range(1, tl.cdiv(cols, tile.blocks * BLOCK)):
        at = columns(chunk, tile)
        more = tl.max(_elements(x, at, inside_of & (at < cols)))
        largest = tl.where(more > largest, more, largest)
    return largest + 0.0


@triton.jit
def _part(x, weight, largest, at, inside, OF: tl.constexpr):
    """Of a tile, the part of a sum."""
    if OF == "weights":
        found = tile_sum(_weights(weight, at, inside))
    else:
        value = widened(x, at, inside)
        if OF == "exponentials":
            head, rest = _plain(value, largest)
            found = tile_sum(tl.where(inside, _weight_of(head, rest), 0.0))
        else:
            difference = tl.where(inside, value - largest, 0.0)
            found = tile_dot(_weights(weight, at, inside), difference)
    return found


@triton.jit
def _sum(x, weight, largest, cols, inside_of, tile: tl.constexpr, OF: tl.constexpr):
    """Over the row: of `exponentials` e^(x - largest), of `weights`, or of `differences` x -
    largest, times the weights."""
    if tile.chunks == 1:
        at = columns(0, tile)
        total = _part(x, weight, largest, at, inside_of & (at < cols), OF)
    else:
        sums = tl.full([tile.chunks, 1], 0, tl.float32)
        for chunk in range(tl.cdiv(cols, tile.blocks * BLOCK)):
            at = columns(chunk, tile)
            part = _part(x, weight, largest, at, inside_of & (at < cols), OF)
            sums = tl.where(tl.arange(0, tile.chunks)[:, None] == chunk, part, sums)
        total = scalar(pairs(sums))
    return total + 0.0


@triton.jit
def _sum_of_weights(x, weight, cols, inside_of, tile: tl.constexpr):
    total = cols.to(tl.float32)
    if weight is not None:
        zero = tl.cast(0.0, tl.float32)
        total = _sum(x, weight, zero, cols, inside_of, tile, "weights")
    return total


@triton.jit
def _put(pointer, row, value):
    if pointer is not None:
        store(pointer, row, value, True)


@triton.jit
def forward_kernel(
    x,
    target,
    weight,
    loss,
    lse,
    largest,
    sum,
    cols,
    ignore_index,
    shares,
    tile: tl.constexpr,
):
    """A program takes a row, of which it reads nothing if its target does not count."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.cast(cols, tl.int32)
    x += row * cols
    wanted = _target_of(target, weight, row, cols, ignore_index)
    most = _largest(x, cols, wanted.exists, tile)
    total = _sum(x, weight, most, cols, wanted.exists, tile, "exponentials")
    most = tl.where(total == total, most, total)
    most = tl.where(wanted.ignored, 0.0, tl.where(wanted.exists, most, _NAN))
    total = tl.where(wanted.ignored, 1.0, tl.where(wanted.exists, total, _NAN))
    log_of_sum = function_of(total, "log")
    head, rest = _plain(widened(x, wanted.at, wanted.exists), most)
    terms = (0.0 - _log_of(head, rest, log_of_sum)) * shares.own
    if shares.squared is not None:
        whole = most + log_of_sum
        terms = tl.fma(whole * shares.squared, whole, terms)
    found = wanted.weight * terms
    if shares.each is not None:
        weights = _sum_of_weights(x, weight, cols, wanted.exists, tile)
        differences = _sum(x, weight, most, cols, wanted.exists, tile, "differences")
        found = tl.fma(weights * log_of_sum - differences, shares.each, found)
    _put(loss, row, tl.where(wanted.ignored, 0.0, found))
    _put(lse, row, most + log_of_sum)
    _put(largest, row, most)
    _put(sum, row, total)


@triton.jit
def _gradients(x, weight, grad_x, wanted, largest, factors, at, inside, cols):
    head, rest = _plain(widened(x, at, inside & (wanted.ignored == 0)), largest)
    value = factors.by_weight * _weight_of(head, rest)
    if factors.by_class is not None:
        value = _minus_product(_weights(weight, at, inside), factors.by_class, value)
    value = tl.where(at == wanted.at, value - factors.at_target, value)
    store(grad_x, at, tl.where(wanted.ignored, 0.0, value), inside)


@triton.jit
def backward_kernel(
    grad_loss,
    x,
    target,
    weight,
    largest,
    sum,
    grad_x,
    cols,
    ignore_index,
    shares,
    tile: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.cast(cols, tl.int32)
    x += row * cols
    grad_x += row * cols
    wanted = _target_of(target, weight, row, cols, ignore_index)
    most, total, grad = tl.load(largest + row), tl.load(sum + row), tl.load(grad_loss + row)
    part = tl.cast(shares.own, tl.float32)
    if shares.squared is not None:
        part = tl.fma(most + function_of(total, "log"), shares.squared * 2.0, part)
    part = wanted.weight * part
    if shares.each is not None:
        weights = _sum_of_weights(x, weight, cols, wanted.ignored == 0, tile)
        part = tl.fma(weights, shares.each, part)
    by_weight = grad * part * tl.div_rn(tl.cast(1.0, tl.float32), total)
    by_class = None if shares.each is None else grad * shares.each
    factors = Factors(by_weight, by_class, grad * (wanted.weight * shares.own))
    for chunk in range(tl.cdiv(cols, tile.blocks * BLOCK)):
        at = columns(chunk, tile)
        _gradients(x, weight, grad_x, wanted, most, factors, at, at < cols, cols)


@triton.jit
def totals_kernel(
    loss, target, weight, total, count, rows, cols, ignore_index, LEVELS: tl.constexpr
):
    """One program adds losses and weights of targets, side by side."""
    rows = tl.cast(rows, tl.int64)
    nodes = tl.zeros([LEVELS, 2], tl.float32)
    side = tl.arange(0, 2)
    runs = (rows + RUN - 1) // RUN
    for run in range(0, runs):
        node = tl.zeros([2], tl.float32)
        for i in range(RUN):
            row = run * RUN + i
            if row < rows:
                of_target = _target_of(target, weight, row, cols, ignore_index).weight
                node = node + tl.where(side == 0, tl.load(loss + row), of_target)
        nodes = push(nodes, node, run)
    found = total_of(nodes, runs)
    if total is not None:
        store(total, side, found, side == 0)
    if count is not None:
        store(count, side * 0, found, side == 1)
