# SPDX-License-Identifier: Apache-2.0
"""reduce in Triton, forward and backward, over any dimensions of arrays of any strides, with the
bits of all other variants, but not of doubles. No GPU has run these kernels yet: Triton's
interpreter has.

    VARIANTS["row_per_program"].run(x=x, y=y, reduction="mean")
    VARIANTS["row_per_program"].run(x=x, grad_y=grad_y, grad_x=grad_x, reduction="max")
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from isobit.ops.layernorm.triton_statistics import spread_of, statistics_of
from isobit.ops.triton_norm_rows import (
    BLOCK,
    Loops,
    Source,
    columns,
    exponent_of,
    ldexp,
    load,
    placed,
    scaling_exponent,
    sum_and_dot,
    tile_of,
)
from isobit.ops.triton_variants import Launch, Variant, by_name, store, walked, widened
from isobit.ops.vector_norm.triton import (
    _ELEMENTS,
    _HELD,
    _MOST_TILES,
    _STREAMED,
    _largest,
    _magnitudes,
    _root,
    factors_of,
    length_of,
)

_REDUCTIONS = ("sum", "mean", "var", "std", "l2", "l1", "largest", "smallest", "nonzero")
_REDUCTIONS += ("max", "min")
_UNREAD = ("sum", "mean", "nonzero")  # whose gradients do not depend on x
_INFINITY, _NAN = tl.constexpr(float("inf")), tl.constexpr(float("nan"))


@triton.jit
def _scaled(factors, elements, _inside):
    first, second = factors
    x = elements.x * first * second
    return x, x


@triton.jit
def _nonzeros(_known, elements, inside):
    ones = tl.where(inside & (elements.x != 0.0), 1.0, 0.0)  # NaN is not 0
    return ones, ones


@triton.jit
def _infinities(elements, inside):
    """Whether there is a negative one, and a positive one."""
    below, above = inside & (elements.x == -_INFINITY), inside & (elements.x == _INFINITY)
    return tl.max(below.to(tl.int32)), tl.max(above.to(tl.int32))


@triton.jit
def _total(divisor, held, source, cols, tile: tl.constexpr):
    """Of a row; where additions have left the range, of the row scaled by a power of two."""
    one = tl.cast(1.0, tl.float32)
    total, _ = sum_and_dot(_scaled, (one, one), held, source, cols, tile)
    result = tl.div_rn(total, divisor)
    if (tl.abs(total) < _INFINITY) == 0:
        most = _largest(held, source, cols, tile)
        below, above = _infinities(held, columns(0, tile) < cols)
        if tile.chunks > 1:
            for chunk in range(1, tl.cdiv(cols, tile.blocks * BLOCK)):
                at = columns(chunk, tile)
                less, more = _infinities(load(source, at, at < cols), at < cols)
                below, above = tl.maximum(below, less), tl.maximum(above, more)
        exponent = scaling_exponent(most, tl.cast(0.0, tl.float32))
        finite = most < _INFINITY
        exponent = tl.where(finite, exponent, 0)
        total, _ = sum_and_dot(_scaled, factors_of(exponent), held, source, cols, tile)
        factor, again = factors_of(0 - exponent)
        result = tl.div_rn(total, divisor) * factor * again
        unlike = (most != most) | ((below > 0) & (above > 0))
        endless = tl.where(unlike, _NAN, tl.where(below > 0, -_INFINITY, _INFINITY))
        result = tl.where(finite, result, endless)
    return result


@triton.jit
def _least(x, inside):
    """The least magnitude, and whether an element is NaN."""
    size = tl.where(inside & (x == x), tl.abs(x), _INFINITY)
    return tl.min(size), tl.max((inside & (x != x)).to(tl.int32))


@triton.jit
def _smallest(held, source, cols, tile: tl.constexpr):
    """NaN where an element is; infinite of no elements."""
    least, broken = _least(held.x, columns(0, tile) < cols)
    if tile.chunks > 1:
        for chunk in range(1, tl.cdiv(cols, tile.blocks * BLOCK)):
            at = columns(chunk, tile)
            less, some = _least(load(source, at, at < cols).x, at < cols)
            least, broken = tl.minimum(least, less), tl.maximum(broken, some)
    return tl.where(broken > 0, _NAN, least)


@triton.jit
def _highest(x, inside):
    """The largest element, and whether one is NaN."""
    most = tl.max(tl.where(inside & (x == x), x, -_INFINITY))
    return most, tl.max((inside & (x != x)).to(tl.int32))


@triton.jit
def _bound(sign: tl.constexpr, held, source, cols, tile: tl.constexpr):
    """The largest element, or of sign -1 the smallest; NaN where one is, infinite of none."""
    most, broken = _highest(held.x * sign, columns(0, tile) < cols)
    if tile.chunks > 1:
        for chunk in range(1, tl.cdiv(cols, tile.blocks * BLOCK)):
            at = columns(chunk, tile)
            more, some = _highest(load(source, at, at < cols).x * sign, at < cols)
            most, broken = tl.maximum(most, more), tl.maximum(broken, some)
    return tl.where(broken > 0, _NAN, most * sign)


@triton.jit
def _extreme(held, source, cols, REDUCTION: tl.constexpr, tile: tl.constexpr):
    if REDUCTION == "largest":
        result = _largest(held, source, cols, tile)
    elif REDUCTION == "smallest":
        result = _smallest(held, source, cols, tile)
    else:
        result = _bound(1.0 if REDUCTION == "max" else -1.0, held, source, cols, tile)
    return result


@triton.jit
def _spread(share, held, source, cols, tile: tl.constexpr, ROOT: tl.constexpr):
    """share: the count, and what is divided by instead."""
    found = statistics_of(held, source, cols, 0.0, tile)
    spread, exponent = spread_of(found, held, source, cols, tile)
    count, freedom = share
    spread = spread * tl.div_rn(count, tl.cast(freedom, tl.float32))
    return ldexp(tl.sqrt_rn(spread), 0 - exponent) if ROOT else ldexp(spread, -2 * exponent)


@triton.jit
def _rows(
    x,
    y,
    kept,
    x_steps,
    y_steps,
    reduced,
    cols,
    freedom,
    REDUCTION: tl.constexpr,
    tile: tl.constexpr,
):
    """A program takes a row, of which `reduced` says where its elements stand."""
    row = tl.program_id(0).to(tl.int64)
    source = Source(x + walked(kept, x_steps, row), None, None, reduced, None)
    at = columns(0, tile)
    held = load(source, at, at < cols)
    count = tl.cast(cols, tl.float32)
    if REDUCTION == "sum":
        result = _total(tl.cast(1.0, tl.float32), held, source, cols, tile)
    elif REDUCTION == "mean":
        result = _total(count, held, source, cols, tile)
    elif REDUCTION == "var" or REDUCTION == "std":
        share = count, freedom
        result = _spread(share, held, source, cols, tile, REDUCTION == "std")
    elif REDUCTION == "l2":
        result = _root(held, source, cols, tile)
    elif REDUCTION == "l1":
        result, _ = sum_and_dot(_magnitudes, None, held, source, cols, tile)
    elif REDUCTION == "nonzero":
        result, _ = sum_and_dot(_nonzeros, None, held, source, cols, tile)
    else:
        result = _extreme(held, source, cols, REDUCTION, tile) + 0.0  # of zeros, +0
    store(y, walked(kept, y_steps, row), result, True)


class Slope(NamedTuple):
    """The numbers of a row that its gradient is made of: see formula.h."""

    factor: tl.tensor
    into: tuple  # as what x is multiplied by first
    mean: tl.tensor
    shift: tl.tensor
    residue: tl.tensor
    rstd: tl.tensor
    back: tuple
    bound: tl.tensor
    none: tl.tensor


@triton.jit
def _equals(centre, elements, inside):
    size = tl.abs(elements.x)
    unlike = (size < centre) | (centre < size)
    ones = tl.where(inside & (unlike == 0), 1.0, 0.0)
    return ones, ones


@triton.jit
def _matches(centre, elements, inside):
    unlike = (elements.x < centre) | (centre < elements.x)
    ones = tl.where(inside & (unlike == 0), 1.0, 0.0)
    return ones, ones


@triton.jit
def _centred_slope(grad, freedom, held, source, cols, tile: tl.constexpr, ROOT: tl.constexpr):
    one = tl.cast(1.0, tl.float32)
    freedom = tl.cast(freedom, tl.float32)
    row = statistics_of(held, source, cols, 0.0, tile)
    if ROOT:
        spread, _ = spread_of(row, held, source, cols, tile)
        root = tl.sqrt_rn(spread * tl.div_rn(tl.cast(cols, tl.float32), freedom))
        rstd = tl.where(root == 0.0, 0.0, tl.div_rn(one, root))
        factor = tl.where(root == 0.0, 0.0, tl.div_rn(grad, freedom))
        back = one, one
    else:
        rstd, factor = one, tl.div_rn(grad * 2.0, freedom)
        exponent = exponent_of(row.factor) + exponent_of(row.factor_again)
        back = factors_of(0 - exponent)
    into = row.factor, row.factor_again
    return Slope(factor, into, row.mean, row.shift, row.residue, rstd, back, one, one)


@triton.jit
def _slope(grad, freedom, held, source, cols, REDUCTION: tl.constexpr, tile: tl.constexpr):
    one, zero = tl.cast(1.0, tl.float32), tl.cast(0.0, tl.float32)
    ones = one, one
    slope = Slope(grad, ones, zero, zero, zero, one, ones, zero, zero)
    if REDUCTION == "mean":
        factor = tl.div_rn(grad, tl.cast(cols, tl.float32))
        slope = Slope(factor, ones, zero, zero, zero, one, ones, zero, zero)
    elif REDUCTION == "nonzero":
        slope = Slope(zero, ones, zero, zero, zero, one, ones, zero, zero)
    elif REDUCTION == "var" or REDUCTION == "std":
        slope = _centred_slope(grad, freedom, held, source, cols, tile, REDUCTION == "std")
    elif REDUCTION == "l2":
        root, exponent = length_of(held, source, cols, tile)
        rstd = tl.where(root == 0.0, 0.0, tl.div_rn(one, root))
        factor = tl.where(root == 0.0, 0.0, grad)
        slope = Slope(factor, factors_of(exponent), zero, zero, zero, rstd, ones, zero, zero)
    elif REDUCTION != "sum" and REDUCTION != "l1":
        bound = _extreme(held, source, cols, REDUCTION, tile)
        if REDUCTION == "max" or REDUCTION == "min":
            count, _ = sum_and_dot(_matches, bound, held, source, cols, tile)
        else:
            count, _ = sum_and_dot(_equals, bound, held, source, cols, tile)
        broken = bound != bound
        factor = tl.where(broken, bound, tl.div_rn(grad, count))
        none = tl.where(broken, bound, zero)
        slope = Slope(factor, ones, zero, zero, zero, one, ones, bound, none)
    return slope


@triton.jit
def _gradient(slope, x, REDUCTION: tl.constexpr):
    if REDUCTION == "var" or REDUCTION == "std" or REDUCTION == "l2":
        centred = x * slope.into[0] * slope.into[1] - slope.mean - slope.shift - slope.residue
        result = centred * slope.rstd * slope.factor * slope.back[0] * slope.back[1]
    elif REDUCTION == "max" or REDUCTION == "min":
        unlike = (x < slope.bound) | (slope.bound < x)
        result = tl.where(unlike, slope.none, slope.factor)
    elif REDUCTION == "l1" or REDUCTION == "largest" or REDUCTION == "smallest":
        other = x * 0.0 + 0.0 + slope.none  # 0 of zeros, and NaN of NaN
        below = tl.where(x < 0.0, slope.factor * -1.0, other)
        result = tl.where(x > 0.0, slope.factor, below)
        if REDUCTION != "l1":
            size = tl.abs(x)
            unlike = (size < slope.bound) | (slope.bound < size)
            result = tl.where(unlike, slope.none, result)
    else:
        result = tl.zeros_like(x) + slope.factor
    return result


@triton.jit
def _element(x, at, inside, steps, READ: tl.constexpr):
    """Of a row, whose elements need not be read."""
    elements = Source(tl.zeros(at.shape, tl.float32), None, None, None, None)
    if READ:
        elements = load(Source(x, None, None, steps, None), at, inside)
    return elements


@triton.jit
def _gradients(
    x,
    grad_y,
    grad_x,
    kept,
    x_steps,
    y_steps,
    to_steps,
    reduced,
    to_reduced,
    cols,
    freedom,
    REDUCTION: tl.constexpr,
    READ: tl.constexpr,
    tile: tl.constexpr,
):
    """A program takes a row. x is grad_x where it is not read."""
    row = tl.program_id(0).to(tl.int64)
    of_row = x + walked(kept, x_steps, row)
    to = grad_x + walked(kept, to_steps, row)
    grad = widened(grad_y, walked(kept, y_steps, row), True)
    at = columns(0, tile)
    held = _element(of_row, at, at < cols, reduced, READ)
    source = Source(of_row, None, None, reduced, None)
    slope = _slope(grad, freedom, held, source, cols, REDUCTION, tile)
    store(to, placed(to_reduced, at), _gradient(slope, held.x, REDUCTION), at < cols)
    if tile.chunks > 1:
        for chunk in range(1, tl.cdiv(cols, tile.blocks * BLOCK)):
            at = columns(chunk, tile)
            elements = _element(of_row, at, at < cols, reduced, READ)
            store(to, placed(to_reduced, at), _gradient(slope, elements.x, REDUCTION), at < cols)


def _loops(extents, *strides):
    """Dims as loops, from the innermost on; neighbours that all arrays allow to be one are one."""
    found = []
    for extent, *steps in reversed(list(zip(extents, *strides, strict=True))):
        if extent == 1:
            continue
        if found and all(
            step == found[-1][0] * inner for step, inner in zip(steps, found[-1][1:], strict=True)
        ):
            found[-1][0] *= extent
        else:
            found.append([extent, *steps])
    return tuple(zip(*found, strict=True)) or ((),) * (1 + len(strides))


def _check(x, y, reduction, correction, names=("x", "y")):
    if reduction not in _REDUCTIONS:
        allowed = ", ".join(_REDUCTIONS)
        raise ValueError(f"reduce: reduction is {reduction!r}; allowed: {allowed}")
    if not math.isfinite(correction):
        raise ValueError(f"reduce: correction is {correction}; must be finite")
    x_name, y_name = names
    if y.dtype not in (x.dtype, torch.float32):
        raise ValueError(f"reduce: {y_name} is {y.dtype}; must be {x.dtype} or {torch.float32}")
    if y.dim() >= x.dim() or y.shape != x.shape[: y.dim()]:
        raise ValueError(
            f"reduce: {y_name} has shape {tuple(y.shape)}; must be the first dimensions of "
            f"{x_name}, whose shape is {tuple(x.shape)}, and not all"
        )


def _check_x(x, grad_x, reduction):
    if x is None and reduction not in _UNREAD:
        raise ValueError("reduce: x is not given; it is required")
    if x is not None and (x.shape != grad_x.shape or x.dtype != grad_x.dtype):
        raise ValueError(
            f"reduce: x has shape {tuple(x.shape)} and is {x.dtype}; grad_x has shape "
            f"{tuple(grad_x.shape)} and is {grad_x.dtype}"
        )


def _in_row(cols, loops):
    """Where its elements stand; None where they are adjacent."""
    return None if cols == 0 or loops[1] in ((), (1,)) else Loops(*loops)


def _freedom(cols, correction):
    return float(np.float32(max(cols - correction, 0.0)))


def _make(most, plan, **given):
    backward = "grad_x" in given
    yield from _backward(most, plan, **given) if backward else _forward(most, plan, **given)


def _backward(most, plan, grad_y, grad_x, x=None, reduction="sum", correction=1.0):
    correction = float(correction)
    _check(grad_x, grad_y, reduction, correction, ("grad_x", "grad_y"))
    _check_x(x, grad_x, reduction)
    read = reduction not in _UNREAD
    x = x if read else grad_x
    rank, cols = grad_y.dim(), math.prod(grad_x.shape[grad_y.dim() :])
    if cols == 0:
        return
    strides = x.stride()[:rank], grad_y.stride(), grad_x.stride()[:rank]
    kept, x_steps, y_steps, to_steps = _loops(grad_y.shape, *strides)
    arguments = {"x": x, "grad_y": grad_y, "grad_x": grad_x, "kept": kept, "x_steps": x_steps}
    arguments |= {"y_steps": y_steps, "to_steps": to_steps, "cols": cols}
    for name, array in (("reduced", x), ("to_reduced", grad_x)):
        arguments[name] = _in_row(cols, _loops(array.shape[rank:], array.stride()[rank:]))
    arguments |= {"freedom": _freedom(cols, correction), "REDUCTION": reduction}
    arguments |= {"READ": read, "tile": tile_of(cols, most)}
    yield Launch(_gradients, (grad_y.numel(),), arguments, plan["warps"])


def _forward(most, plan, x, y, reduction="sum", correction=1.0):
    correction = float(correction)
    _check(x, y, reduction, correction)
    rank, cols = y.dim(), math.prod(x.shape[y.dim() :])
    kept, x_steps, y_steps = _loops(y.shape, x.stride()[:rank], y.stride())
    reduced = _in_row(cols, _loops(x.shape[rank:], x.stride()[rank:]))
    arguments = {"x": x, "y": y, "kept": kept, "x_steps": x_steps, "y_steps": y_steps}
    arguments |= {"reduced": reduced, "cols": cols, "freedom": _freedom(cols, correction)}
    arguments |= {"REDUCTION": reduction, "tile": tile_of(cols, most)}
    yield Launch(_rows, (y.numel(),), arguments, plan["warps"])


def _cols(case):
    names = ("grad_x", "grad_y") if "grad_x" in case.shapes else ("x", "y")
    whole, kept = (case.shapes[name] for name in names)
    return math.prod(whole[len(kept) :])


def _tile(most, case):
    return tile_of(_cols(case), most)


def _up_to(most, holder, case):
    if "f64" in case.dtypes.values():
        return "it computes in float, not in f64"
    cols = _cols(case)
    return f"{cols} columns; {holder} at most {most}" if cols > most else ""


def _variant(name, most, tiles, holder):
    """Of rows of so many tiles."""
    return Variant(
        name=name,
        kinds=("fwd", "bwd"),
        takes=frozenset({"x", "y", "grad_y", "grad_x", "reduction", "correction"}),
        make=partial(_make, most),
        knobs={"warps": (1, 2, 4, 8, 16)},
        choose=lambda case: {"warps": _tile(most, case).warps(_ELEMENTS)},
        declines=partial(_up_to, most * tiles, holder),
        any_strides=True,
    )


VARIANTS = by_name(
    _variant("row_per_program", _HELD, 1, "registers hold"),
    _variant("streamed", _STREAMED, _MOST_TILES, "a program keeps the sums of"),
)
