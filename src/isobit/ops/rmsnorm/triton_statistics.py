# SPDX-License-Identifier: Apache-2.0
"""The statistics of a row of RMSNorm in Triton, by the arithmetic of formula.h, to the bit."""

import triton
import triton.language as tl

from isobit.ops.triton_norm_rows import (
    BLOCK,
    Statistics,
    columns,
    deviations,
    inverse_root,
    is_in_range,
    ldexp,
    load,
    power_of_two,
    scaling_exponent,
    sum_and_dot,
)


@triton.jit
def _of(rstd, factor, again, saved_rstd):
    return Statistics(rstd, factor, again, None, None, None, None, saved_rstd)


@triton.jit
def _squares(factor, again, held, source, cols, tile: tl.constexpr):
    zero = tl.cast(0.0, tl.float32)
    row = _of(zero, factor, again, zero)
    _, squares = sum_and_dot(deviations, row, held, source, cols, tile)
    return squares


@triton.jit
def _inverse_root_of_mean(squares, cols, eps):
    """In double, which rounds about once: each rounding would count in every element of a row."""
    mean_square = squares.to(tl.float64) / tl.cast(cols, tl.float64)
    root = tl.sqrt(mean_square + eps.to(tl.float64))
    return (tl.cast(1.0, tl.float64) / root).to(tl.float32)


@triton.jit
def statistics_of(held, source, cols, eps, tile: tl.constexpr):
    eps = tl.cast(eps, tl.float32)
    one = tl.cast(1.0, tl.float32)
    squares = _squares(one, one, held, source, cols, tile)
    rstd = _inverse_root_of_mean(squares, cols, eps)
    row = _of(rstd, one, one, rstd)
    if is_in_range(squares) == 0:
        row = _the_long_way(squares, held, source, cols, eps, tile)
    return row


@triton.jit
def _the_long_way(squares, held, source, cols, eps, tile: tl.constexpr):
    """For rows whose squares overflow or underflow, and those that are no numbers."""
    one = tl.cast(1.0, tl.float32)
    largest = _largest(held, source, cols, tile)
    if (squares != squares) | (cols == 0):
        nan = tl.cast(float("nan"), tl.float32)
        row = _of(nan, one, one, nan)
    elif largest == 0:
        rstd = tl.where(eps == 0, 0.0, inverse_root(eps))
        row = _of(rstd, one, one, rstd)
    else:  # whatever the scale, the squares of an infinity have the inverse root 0
        exponent = scaling_exponent(largest, eps)
        factor, again = power_of_two(exponent // 2), power_of_two(exponent - exponent // 2)
        squares = _squares(factor, again, held, source, cols, tile)
        rstd = _inverse_root_of_mean(squares, cols, ldexp(eps, 2 * exponent))
        row = _of(rstd, factor, again, ldexp(rstd, exponent))
    return row


@triton.jit
def _largest(held, source, cols, tile: tl.constexpr):
    """Of a row without NaN; what lies outside of it is 0."""
    if tile.chunks == 1:
        largest = tl.max(tl.abs(held.x))
    else:
        largest = tl.cast(0.0, tl.float32)
        for chunk in range(tl.cdiv(cols, tile.blocks * BLOCK)):
            at = columns(chunk, tile)
            largest = tl.maximum(largest, tl.max(tl.abs(load(source, at, at < cols).x)))
    return largest
