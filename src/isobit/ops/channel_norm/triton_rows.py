# SPDX-License-Identifier: Apache-2.0
"""The kernels of group_norm and batch_norm in Triton: a program takes a row, wherever its elements
stand, with LayerNorm's statistics."""

from typing import NamedTuple

import triton
import triton.language as tl

from isobit.ops.layernorm.triton_statistics import moments_of, statistics_by, variance_of
from isobit.ops.triton_norm_rows import (
    BLOCK,
    Source,
    Statistics,
    Steps,
    columns,
    inverse_root,
    load,
    minus_product,
    normalised,
    placed,
    sum_and_dot,
)
from isobit.ops.triton_variants import store, widened


class Images(NamedTuple):
    """An array (batch, channels, extent): its strides."""

    data: tl.tensor
    n: int
    c: int
    step: int


class OfRows(NamedTuple):
    """One number or some for each row, of images and groups, or of channels: from one to the
    next."""

    data: tl.tensor
    n: int
    g: int
    step: int


class Rows(NamedTuple):
    """Which elements are a row: `of_group` channels of an image, `groups` of them; 0: a channel of
    all images."""

    groups: int
    of_group: int
    extent: int


class Running(NamedTuple):
    """Running statistics, None in their place where there are none, and what becomes of them."""

    mean: tl.tensor
    var: tl.tensor
    next_mean: tl.tensor
    next_var: tl.tensor
    take: float
    keep: float
    correction: float  # n / (n - 1)


@triton.jit
def _first(array, rows, row, OVER_IMAGES: tl.constexpr):
    """Where a row begins in an array."""
    if OVER_IMAGES:
        place = row * array.c
    else:
        place = row // rows.groups * array.n + row % rows.groups * rows.of_group * array.c
    return array.data + place


@triton.jit
def _place(of, rows, row, OVER_IMAGES: tl.constexpr):
    """Of the first number of a row."""
    place = row * of.g
    if not OVER_IMAGES:
        place = row // rows.groups * of.n + row % rows.groups * of.g
    return place


@triton.jit
def _put(to, rows, row, value, OVER_IMAGES: tl.constexpr, number: tl.constexpr = 0):
    if to.data is not None:
        place = _place(to, rows, row, OVER_IMAGES) + number * to.step
        store(to.data, place, value, True)


@triton.jit
def _steps(array, rows, OVER_IMAGES: tl.constexpr):
    segment = array.n if OVER_IMAGES else array.c
    return Steps(rows.extent, segment, array.step)


@triton.jit
def _first_channel(rows, row, OVER_IMAGES: tl.constexpr):
    channel = row
    if not OVER_IMAGES:
        channel = row % rows.groups * rows.of_group
    return channel


@triton.jit
def _given(running, row, eps):
    """Statistics that were gathered before."""
    one, zero = tl.cast(1.0, tl.float32), tl.cast(0.0, tl.float32)
    mean = tl.load(running.mean + row)
    rstd = inverse_root(tl.load(running.var + row) + tl.cast(eps, tl.float32))
    return Statistics(rstd, one, one, mean, zero, zero, mean, rstd)


@triton.jit
def _moved(running, value, take, keep):
    return tl.fma(tl.cast(take, tl.float32), value, tl.cast(keep, tl.float32) * running)


@triton.jit
def _move(running, row, found, held, source, cols, tile: tl.constexpr):
    if running.next_mean is not None:
        before = tl.load(running.mean + row)
        after = _moved(before, found.saved_mean, running.take, running.keep)
        store(running.next_mean, row, tl.where(cols == 0, before, after), True)
    if running.next_var is not None:
        before = tl.load(running.var + row)
        variance = variance_of(found, held, source, cols, tile)
        sample = variance * tl.cast(running.correction, tl.float32)
        after = _moved(before, sample, running.take, running.keep)
        store(running.next_var, row, tl.where(cols == 0, before, after), True)


@triton.jit
def _write(found, x, weight, bias, channel, rows, y, steps, at, inside, OVER_IMAGES: tl.constexpr):
    """y = fma(x̂, weight, bias); an absent weight is 1, an absent bias -0."""
    result = normalised(found, x)
    if not OVER_IMAGES:
        channel += at // rows.extent
    if weight is not None and bias is not None:
        result = tl.fma(result, widened(weight, channel, True), widened(bias, channel, True))
    elif weight is not None:
        result *= widened(weight, channel, True)
    elif bias is not None:
        result += widened(bias, channel, True)
    store(y, placed(steps, at), result, inside)


@triton.jit
def forward_kernel(
    x,
    weight,
    bias,
    y,
    mean,
    rstd,
    moments,
    running,
    rows,
    cols,
    eps,
    OVER_IMAGES: tl.constexpr,
    TRAINING: tl.constexpr,
    tile: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    of_x, of_y = _steps(x, rows, OVER_IMAGES), _steps(y, rows, OVER_IMAGES)
    source = Source(_first(x, rows, row, OVER_IMAGES), None, None, of_x, None)
    to = _first(y, rows, row, OVER_IMAGES)
    channel = _first_channel(rows, row, OVER_IMAGES)
    at = columns(0, tile)
    held = load(source, at, at < cols)
    if TRAINING:
        first, missed, squares = moments_of(held, source, cols, tile)
        _put(moments, rows, row, first, OVER_IMAGES, 0)
        _put(moments, rows, row, missed, OVER_IMAGES, 1)
        _put(moments, rows, row, squares, OVER_IMAGES, 2)
        found = statistics_by(first, missed, squares, held, source, cols, eps, tile)
        _move(running, row, found, held, source, cols, tile)
    else:
        found = _given(running, row, eps)
    _put(mean, rows, row, found.saved_mean, OVER_IMAGES)
    _put(rstd, rows, row, found.saved_rstd, OVER_IMAGES)
    if tile.chunks == 1:
        inside = at < cols
        _write(found, held.x, weight, bias, channel, rows, to, of_y, at, inside, OVER_IMAGES)
    else:
        for chunk in range(tl.cdiv(cols, tile.blocks * BLOCK)):
            at = columns(chunk, tile)
            inside = at < cols
            elements = load(source, at, inside)
            _write(
                found, elements.x, weight, bias, channel, rows, to, of_y, at, inside, OVER_IMAGES
            )


@triton.jit
def _products(row, elements, inside):
    g = tl.where(inside, elements.grad_y * elements.weight, 0.0)
    return g, tl.where(inside, normalised(row, elements.x), 0.0)


@triton.jit
def _plain_products(row, elements, inside):
    """x is x̂ already."""
    return tl.where(inside, elements.grad_y, 0.0), tl.where(inside, elements.x, 0.0)


@triton.jit
def _gradient(
    found,
    elements,
    factor,
    mean_g,
    mean_gx,
    grad_x,
    steps,
    xhat,
    at,
    inside,
    TRAINING: tl.constexpr,
):
    """factor: a channel's weight that the elements do not bring."""
    g = elements.grad_y * elements.weight * factor
    value = normalised(found, elements.x)
    if xhat is not None:
        tl.store(xhat + at, value, mask=inside)
    if grad_x is not None:
        if TRAINING:
            result = found.rstd * minus_product(value, mean_gx, g - mean_g)
            result = result * found.factor * found.factor_again
        else:
            result = found.rstd * g
        store(grad_x, placed(steps, at), result, inside)


@triton.jit
def _statistics(
    moments,
    running,
    held,
    source,
    rows,
    row,
    cols,
    eps,
    OVER_IMAGES: tl.constexpr,
    TRAINING: tl.constexpr,
    tile: tl.constexpr,
):
    if TRAINING:
        if moments.data is not None:
            at = moments.data + _place(moments, rows, row, OVER_IMAGES)
            first, missed = tl.load(at), tl.load(at + moments.step)
            squares = tl.load(at + 2 * moments.step)
        else:
            first, missed, squares = moments_of(held, source, cols, tile)
        found = statistics_by(first, missed, squares, held, source, cols, eps, tile)
    else:
        found = _given(running, row, eps)
    return found


@triton.jit
def backward_kernel(
    x,
    grad_y,
    weight,
    moments,
    running,
    grad_x,
    grad_weight,
    grad_bias,
    xhat,
    rows,
    cols,
    eps,
    OVER_IMAGES: tl.constexpr,
    TRAINING: tl.constexpr,
    tile: tl.constexpr,
):
    """xhat: memory for x̂ of all rows, one after the other, for the sums of a later kernel."""
    row = tl.program_id(0).to(tl.int64)
    channel = _first_channel(rows, row, OVER_IMAGES)
    weights, factor = None, tl.cast(1.0, tl.float32)
    if weight is not None:
        if OVER_IMAGES:
            factor = widened(weight, channel, True)
        else:
            weights = weight + channel
    of_x = _steps(x, rows, OVER_IMAGES)
    of_grad_y = _steps(grad_y, rows, OVER_IMAGES)
    source = Source(
        _first(x, rows, row, OVER_IMAGES),
        _first(grad_y, rows, row, OVER_IMAGES),
        weights,
        of_x,
        of_grad_y,
    )
    at = columns(0, tile)
    held = load(source, at, at < cols)
    found = _statistics(
        moments, running, held, source, rows, row, cols, eps, OVER_IMAGES, TRAINING, tile
    )
    total, dot = sum_and_dot(_products, found, held, source, cols, tile)
    n = tl.cast(cols, tl.float32)
    mean_g, mean_gx = tl.div_rn(total, n), tl.div_rn(dot, n)
    if OVER_IMAGES:
        if grad_bias is not None:
            store(grad_bias, channel, total, True)
        if grad_weight is not None:
            store(grad_weight, channel, dot, True)
        mean_g, mean_gx = factor * mean_g, factor * mean_gx
    to, steps = None, None
    if grad_x.data is not None:
        to, steps = _first(grad_x, rows, row, OVER_IMAGES), _steps(grad_x, rows, OVER_IMAGES)
    if xhat is not None:
        xhat += row * cols
    if tile.chunks == 1:
        inside = at < cols
        _gradient(found, held, factor, mean_g, mean_gx, to, steps, xhat, at, inside, TRAINING)
    else:
        for chunk in range(tl.cdiv(cols, tile.blocks * BLOCK)):
            at = columns(chunk, tile)
            inside = at < cols
            elements = load(source, at, inside)
            _gradient(
                found, elements, factor, mean_g, mean_gx, to, steps, xhat, at, inside, TRAINING
            )


@triton.jit
def channels_kernel(xhat, grad_y, grad_weight, grad_bias, rows, cols, tile: tl.constexpr):
    """The sums over each channel, of x̂ (batch, channels, extent)."""
    channel = tl.program_id(0).to(tl.int64)
    source = Source(
        _first(xhat, rows, channel, True),
        _first(grad_y, rows, channel, True),
        None,
        _steps(xhat, rows, True),
        _steps(grad_y, rows, True),
    )
    at = columns(0, tile)
    held = load(source, at, at < cols)
    total, dot = sum_and_dot(_plain_products, None, held, source, cols, tile)
    if grad_bias is not None:
        store(grad_bias, channel, total, True)
    if grad_weight is not None:
        store(grad_weight, channel, dot, True)
