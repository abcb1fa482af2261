# SPDX-License-Identifier: Apache-2.0
"""reduce in Triton, forward, over any dimensions of arrays of any strides, with the bits of all
other variants, but not of doubles. No GPU has run these kernels yet: Triton's interpreter has.

    VARIANTS["row_per_program"].run(x=x, y=y, reduction="mean")
"""

import math
from functools import partial

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
    ldexp,
    load,
    power_of_two,
    scaling_exponent,
    sum_and_dot,
    tile_of,
)
from isobit.ops.triton_variants import Launch, Variant, by_name, store, walked
from isobit.ops.vector_norm.triton import (
    _ELEMENTS,
    _HELD,
    _MOST_TILES,
    _STREAMED,
    _largest,
    _magnitudes,
    _root,
)

_REDUCTIONS = ("sum", "mean", "var", "std", "l2", "l1", "largest", "smallest", "nonzero")
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
        factors = power_of_two(exponent // 2), power_of_two(exponent - exponent // 2)
        total, _ = sum_and_dot(_scaled, factors, held, source, cols, tile)
        back = 0 - exponent
        result = tl.div_rn(total, divisor) * power_of_two(back // 2)
        result = result * power_of_two(back - back // 2)
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
    elif REDUCTION == "largest":
        result = _largest(held, source, cols, tile)
    elif REDUCTION == "smallest":
        result = _smallest(held, source, cols, tile)
    else:
        tl.static_assert(REDUCTION == "nonzero")
        result, _ = sum_and_dot(_nonzeros, None, held, source, cols, tile)
    store(y, walked(kept, y_steps, row), result, True)


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


def _check(x, y, reduction, correction):
    if reduction not in _REDUCTIONS:
        allowed = ", ".join(_REDUCTIONS)
        raise ValueError(f"reduce: reduction is {reduction!r}; allowed: {allowed}")
    if not math.isfinite(correction):
        raise ValueError(f"reduce: correction is {correction}; must be finite")
    if y.dtype not in (x.dtype, torch.float32):
        raise ValueError(f"reduce: y is {y.dtype}; must be {x.dtype} or {torch.float32}")
    if y.dim() >= x.dim() or y.shape != x.shape[: y.dim()]:
        raise ValueError(
            f"reduce: y has shape {tuple(y.shape)}; must be the first dimensions of x, whose "
            f"shape is {tuple(x.shape)}, and not all"
        )


def _make(most, plan, x, y, reduction="sum", correction=1.0):
    correction = float(correction)
    _check(x, y, reduction, correction)
    rank, cols = y.dim(), math.prod(x.shape[y.dim() :])
    kept, x_steps, y_steps = _loops(y.shape, x.stride()[:rank], y.stride())
    reduced = _loops(x.shape[rank:], x.stride()[rank:])
    adjacent = cols == 0 or reduced[1] in ((), (1,))
    arguments = {"x": x, "y": y, "kept": kept, "x_steps": x_steps, "y_steps": y_steps}
    arguments |= {"reduced": None if adjacent else Loops(*reduced), "cols": cols}
    arguments["freedom"] = float(np.float32(max(cols - correction, 0.0)))
    arguments |= {"REDUCTION": reduction, "tile": tile_of(cols, most)}
    yield Launch(_rows, (y.numel(),), arguments, plan["warps"])


def _tile(most, case):
    return tile_of(math.prod(case.shapes["x"][len(case.shapes["y"]) :]), most)


def _up_to(most, holder, case):
    if "f64" in case.dtypes.values():
        return "it computes in float, not in f64"
    cols = math.prod(case.shapes["x"][len(case.shapes["y"]) :])
    return f"{cols} columns; {holder} at most {most}" if cols > most else ""


def _variant(name, most, tiles, holder):
    """Of rows of so many tiles."""
    return Variant(
        name=name,
        kinds=("fwd",),
        takes=frozenset({"x", "y", "reduction", "correction"}),
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
