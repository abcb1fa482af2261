# SPDX-License-Identifier: Apache-2.0
"""A row of a norm in Triton: its sums in the canonical order, its elements as statistics make them.

core/order.h specifies the order, which is kept to the bit for every row.
How Triton adds along an axis is its own business, except along an axis of two: there is one sum of
two numbers. So each level of a fold is a reshape that makes such an axis, and `tl.sum` over it.

A tile is [lines, blocks * 64]: lines of 64 of the blocks of the order, those of all blocks side by
side. So Triton gives a thread all lines of a lane, which it folds without its neighbours.
What is known of a row is scalar: tensors of one element have layouts of their own, and what they
meet was seen to take these on, so that each thread held a whole tile.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from isobit.ops.triton_sums import pairs
from isobit.ops.triton_variants import parts, walked, widened

BLOCK = tl.constexpr(512)
LANES = tl.constexpr(64)

_LOWEST, _HIGHEST = tl.constexpr(2.0**-80), tl.constexpr(2.0**120)  # sums of squares in range
_EPS_EXPONENT = tl.constexpr(60)  # how far eps may be scaled


class Tile(NamedTuple):
    """The shape of a tile, and how many make a row; if one does, it stays in registers."""

    lines: int
    blocks: int
    chunks: int = 1

    def warps(self, elements):
        """So many that a thread has this many elements of a tile."""
        return min(max(self.lines * self.blocks * LANES.value // (32 * elements), 1), 16)


def tile_of(cols, most):
    """A tile of at most so many columns: the row, or a part of it."""
    cols = max(cols, 1)
    lines = parts(min(cols, BLOCK.value), LANES.value)
    blocks = triton.next_power_of_2(parts(min(cols, most), BLOCK.value))
    chunks = parts(cols, blocks * BLOCK.value)
    return Tile(triton.next_power_of_2(lines), blocks, triton.next_power_of_2(chunks))


class Steps(NamedTuple):
    """Where elements of a row stand that is not in one piece: `extent` of each segment, which have
    a weight in common."""

    extent: tl.tensor
    segment: tl.tensor  # from one to the next
    element: tl.tensor


class Loops(NamedTuple):
    """The same of any loops, from the innermost on: their turns, and from one to the next."""

    extents: tuple
    steps: tuple


class Source(NamedTuple):
    """Where a row's arrays begin (None: there is no such), or some elements of them; and the steps
    of x and of grad_y, None where elements are adjacent."""

    x: tl.tensor
    grad_y: tl.tensor
    weight: tl.tensor
    of_x: Steps
    of_grad_y: Steps


class Statistics(NamedTuple):
    """Of one row: x times both factors has this 1/sigma, and a mean of three parts.

    A norm that leaves the mean where it is has None for each part.
    """

    rstd: tl.tensor
    factor: tl.tensor
    factor_again: tl.tensor
    mean: tl.tensor
    shift: tl.tensor
    residue: tl.tensor
    saved_mean: tl.tensor  # of x, as callers get them
    saved_rstd: tl.tensor


@triton.jit
def columns(chunk, tile: tl.constexpr):
    line = tl.arange(0, tile.lines)[:, None] * LANES
    lane = tl.arange(0, tile.blocks * LANES)[None, :]
    return lane // LANES * BLOCK + line + lane % LANES + chunk * (tile.blocks * BLOCK)


@triton.jit
def placed(steps, at):
    """How far from the first some columns stand."""
    if steps is not None:
        if hasattr(steps, "extents"):
            at = walked(steps.extents, steps.steps, at.to(tl.int64))
        else:
            segment = (at // steps.extent).to(tl.int64)
            at = segment * steps.segment + (at % steps.extent).to(tl.int64) * steps.element
    return at


@triton.jit
def load(source, at, inside):
    """What the source has of some columns, and zeros outside; an absent weight is 1."""
    x = widened(source.x, placed(source.of_x, at), inside)
    grad_y, weight = x, tl.cast(1.0, tl.float32)
    if source.grad_y is not None:
        grad_y = widened(source.grad_y, placed(source.of_grad_y, at), inside)
    if source.weight is not None:
        of_weight = at
        if source.of_x is not None:
            of_weight = at // source.of_x.extent
        weight = widened(source.weight, of_weight, inside)
    return Source(x, grad_y, weight, None, None)


@triton.jit
def _halves(x):
    """Folds the middle axis of [outer, count, inner] by halves: i += i + count / 2."""
    for _ in tl.static_range(6):
        if x.shape[1] > 1:
            x = tl.sum(tl.reshape(x, [x.shape[0], 2, x.shape[1] // 2, x.shape[2]]), 1)
    return x


@triton.jit
def tile_sum(x):
    """Lines by halves, lanes by halves, blocks by pairs: a row's sum, or a subtree of it."""
    blocks: tl.constexpr = x.shape[1] // LANES
    lanes = _halves(tl.reshape(x, [1, x.shape[0], x.shape[1]]))
    sums = _halves(tl.reshape(lanes, [blocks, LANES, 1]))
    return scalar(pairs(tl.reshape(sums, [blocks, 1])))


@triton.jit
def scalar(x):
    """Of one element."""
    return tl.sum(x, 0)


@triton.jit
def tile_dot(a, b):
    """The same of a * b, with fma(a[r + 4], b[r + 4], a[r] * b[r]) for a first fold of 8 lines.

    Fewer lines come of a row whose other lines are zeros.
    """
    products = a * b
    if a.shape[0] == 8:
        a_low, a_high = _low_and_high(a)
        b_low, b_high = _low_and_high(b)
        products = tl.fma(a_high, b_high, a_low * b_low)
    return tile_sum(products)


@triton.jit
def _low_and_high(x):
    return tl.split(tl.permute(tl.reshape(x, [2, 4, x.shape[1]]), (1, 2, 0)))


@triton.jit
def sum_and_dot(terms: tl.constexpr, known, held, source, cols, tile: tl.constexpr):
    """S(a) and S(a * b), where terms(known, elements, inside) gives a and b: of the tile held.

    A row of several tiles is read again, one after the other.
    """
    if tile.chunks == 1:
        a, b = terms(known, held, columns(0, tile) < cols)
        total, dot = tile_sum(a), tile_dot(a, b)
    else:
        sums = tl.full([tile.chunks, 1], 0, tl.float32)
        dots = tl.full([tile.chunks, 1], 0, tl.float32)
        for chunk in range(tl.cdiv(cols, tile.blocks * BLOCK)):
            at = columns(chunk, tile)
            a, b = terms(known, load(source, at, at < cols), at < cols)
            here = tl.arange(0, tile.chunks)[:, None] == chunk
            sums = tl.where(here, tile_sum(a), sums)
            dots = tl.where(here, tile_dot(a, b), dots)
        total, dot = scalar(pairs(sums)), scalar(pairs(dots))
    return total + 0.0, dot + 0.0


@triton.jit
def _centered(row, x):
    scaled = x * row.factor * row.factor_again
    if row.mean is not None:
        scaled = scaled - row.mean - row.shift - row.residue
    return scaled


@triton.jit
def normalised(row, x):
    return _centered(row, x) * row.rstd


@triton.jit
def deviations(row, elements, inside):
    d = tl.where(inside, _centered(row, elements.x), 0.0)
    return d, d


@triton.jit
def minus_product(a, b, c):
    """c - a * b, rounded once; Triton's own minus makes +0 of +0."""
    return tl.fma(a * -1.0, b, c)


@triton.jit
def is_in_range(squares):
    """Whether no square that matters has left the range of floats."""
    return (squares > _LOWEST) & (squares < _HIGHEST)


@triton.jit
def inverse_root(value):
    return tl.div_rn(tl.cast(1.0, tl.float32), tl.sqrt_rn(value))


@triton.jit
def exponent_of(x):
    """The exponent of a finite number that is not 0."""
    tiny = tl.abs(x) < 2.0**-126
    bits = tl.where(tiny, x * 2.0**64, x).to(tl.int32, bitcast=True)
    return (bits >> 23 & 0xFF) - tl.where(tiny, 127 + 64, 127)


@triton.jit
def power_of_two(exponent):
    return (exponent + 127 << 23).to(tl.float32, bitcast=True)


@triton.jit
def ldexp(x, exponent):
    """x * 2^exponent, rounded once: double holds the product."""
    power = ((exponent + 1023).to(tl.int64) << 52).to(tl.float64, bitcast=True)
    return (x.to(tl.float64) * power).to(tl.float32)


@triton.jit
def scaling_exponent(largest, eps):
    """Of the power that brings the largest element to [1, 2), unless eps would leave its range."""
    exponent = -exponent_of(largest)
    limit = _EPS_EXPONENT - exponent_of(eps) >> 1
    return tl.where(eps == 0, exponent, tl.minimum(exponent, limit))
