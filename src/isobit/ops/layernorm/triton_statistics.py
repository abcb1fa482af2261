# SPDX-License-Identifier: Apache-2.0
"""The statistics of a row of LayerNorm in Triton, by the arithmetic of formula.h, to the bit."""

import triton
import triton.language as tl

from isobit.ops.triton_norm_rows import (
    BLOCK,
    Statistics,
    columns,
    deviations,
    exponent_of,
    inverse_root,
    is_in_range,
    ldexp,
    load,
    minus_product,
    power_of_two,
    scaling_exponent,
    sum_and_dot,
)

_INFINITY = tl.constexpr(float("inf"))


@triton.jit
def _variance(shift, mean_square):
    value = minus_product(shift, shift, mean_square)
    return tl.where(value < 0, 0.0, value)  # NaN stays


@triton.jit
def _accurate(shift, mean_square):
    """A mean that is off by more than a quarter of sigma leaves the variance too few digits."""
    return (shift * shift > mean_square * 0.0625) == 0


@triton.jit
def _two_rounds(factor, again, held, source, cols, tile: tl.constexpr):
    """The mean as far as one number tells; the sums of what that misses and of its squares."""
    n = tl.cast(cols, tl.float32)
    zero = tl.cast(0.0, tl.float32)
    row = Statistics(zero, factor, again, zero, zero, zero, zero, zero)
    total, _ = sum_and_dot(deviations, row, held, source, cols, tile)
    mean = tl.div_rn(total, n)
    row = Statistics(zero, factor, again, mean, zero, zero, zero, zero)
    missed, squares = sum_and_dot(deviations, row, held, source, cols, tile)
    return mean, missed, squares


@triton.jit
def moments_of(held, source, cols, tile: tl.constexpr):
    """What the statistics of a row that is not scaled are made of."""
    one = tl.cast(1.0, tl.float32)
    return _two_rounds(one, one, held, source, cols, tile)


@triton.jit
def statistics_of(held, source, cols, eps, tile: tl.constexpr):
    mean, missed, squares = moments_of(held, source, cols, tile)
    return statistics_by(mean, missed, squares, held, source, cols, eps, tile)


@triton.jit
def statistics_by(mean, missed, squares, held, source, cols, eps, tile: tl.constexpr):
    """Of a row whose moments are known."""
    eps = tl.cast(eps, tl.float32)
    one, zero = tl.cast(1.0, tl.float32), tl.cast(0.0, tl.float32)
    n = tl.cast(cols, tl.float32)
    shift, mean_square = tl.div_rn(missed, n), tl.div_rn(squares, n)
    in_range = is_in_range(squares)
    rstd = inverse_root(_variance(shift, mean_square) + eps)
    row = Statistics(rstd, one, one, mean, shift, zero, mean + shift, rstd)
    if (in_range & _accurate(shift, mean_square)) == 0:
        row = _the_long_way(in_range, held, source, cols, eps, tile)
    return row


@triton.jit
def spread_of(row, held, source, cols, tile: tl.constexpr):
    """The variance of a row whose statistics are known, as reduce/formula.h has it: times
    4^exponent; and the exponent."""
    n = tl.cast(cols, tl.float32)
    _, missed, squares = moments_of(held, source, cols, tile)
    shift, mean_square = tl.div_rn(missed, n), tl.div_rn(squares, n)
    variance, exponent = _variance(shift, mean_square), tl.cast(0, tl.int32)
    if (is_in_range(squares) & _accurate(shift, mean_square)) == 0:
        missed, squares = sum_and_dot(deviations, row, held, source, cols, tile)
        variance = _variance(tl.div_rn(missed, n), tl.div_rn(squares, n))
        exponent = exponent_of(row.factor) + exponent_of(row.factor_again)
    return variance, exponent


@triton.jit
def variance_of(row, held, source, cols, tile: tl.constexpr):
    variance, exponent = spread_of(row, held, source, cols, tile)
    return ldexp(variance, -2 * exponent)


@triton.jit
def _the_long_way(in_range, held, source, cols, eps, tile: tl.constexpr):
    """For rows that lose digits otherwise: broken, constant, out of range, all but constant."""
    one, zero = tl.cast(1.0, tl.float32), tl.cast(0.0, tl.float32)
    lowest, highest, broken = _extremes(held, source, cols, tile)
    if broken:
        nan = zero + float("nan")
        row = Statistics(nan, one, one, nan, zero, zero, nan, nan)
    elif lowest == highest:
        first = tl.load(source.x).to(tl.float32)
        mean = tl.where(first == 0, tl.abs(first) * -1.0, first)  # less -0, either zero is +0
        rstd = tl.where(eps == 0, 0.0, inverse_root(eps))
        row = Statistics(rstd, one, one, mean, zero, zero, first, rstd)
    else:
        largest = tl.maximum(tl.abs(lowest), tl.abs(highest))
        exponent = tl.where(in_range, 0, scaling_exponent(largest, eps))
        row = _scaled_statistics(exponent, held, source, cols, eps, tile)
    return row


@triton.jit
def _scaled_statistics(exponent, held, source, cols, eps, tile: tl.constexpr):
    n = tl.cast(cols, tl.float32)
    zero = tl.cast(0.0, tl.float32)
    factor, again = power_of_two(exponent // 2), power_of_two(exponent - exponent // 2)
    mean, missed, squares = _two_rounds(factor, again, held, source, cols, tile)
    shift, mean_square = tl.div_rn(missed, n), tl.div_rn(squares, n)
    residue = zero
    variance = _variance(shift, mean_square)
    if _accurate(shift, mean_square) == 0:
        row = Statistics(zero, factor, again, mean, shift, zero, zero, zero)
        missed, squares = sum_and_dot(deviations, row, held, source, cols, tile)
        residue = tl.div_rn(missed, n)
        variance = _variance(residue, tl.div_rn(squares, n))
    rstd = inverse_root(variance + ldexp(eps, 2 * exponent))
    saved_mean = ldexp(mean + (shift + residue), -exponent)
    saved_rstd = ldexp(rstd, exponent)
    return Statistics(rstd, factor, again, mean, shift, residue, saved_mean, saved_rstd)


@triton.jit
def _extremes(held, source, cols, tile: tl.constexpr):
    """The smallest and the largest element, and whether any is not finite."""
    if tile.chunks == 1:
        lowest, highest, broken = _tile_extremes(held.x, columns(0, tile) < cols)
    else:
        lowest, highest = tl.cast(_INFINITY, tl.float32), tl.cast(-_INFINITY, tl.float32)
        broken = tl.cast(0, tl.int32)
        for chunk in range(tl.cdiv(cols, tile.blocks * BLOCK)):
            at = columns(chunk, tile)
            low, high, some = _tile_extremes(load(source, at, at < cols).x, at < cols)
            lowest, highest = tl.minimum(lowest, low), tl.maximum(highest, high)
            broken = tl.maximum(broken, some)
    return lowest, highest, broken > 0


@triton.jit
def _tile_extremes(x, inside):
    finite = tl.abs(x) < _INFINITY  # NaN is not
    lowest = tl.min(tl.where(inside & finite, x, _INFINITY))
    highest = tl.max(tl.where(inside & finite, x, -_INFINITY))
    return lowest, highest, tl.max((inside & (finite == 0)).to(tl.int32))
