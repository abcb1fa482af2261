# SPDX-License-Identifier: Apache-2.0
"""Norms of rows in Triton, with the bits of all other variants, but not of doubles. No GPU has run
these kernels yet: Triton's interpreter has.

    VARIANTS["row_per_program"].run(x=x, norm=norm, order="l2")
"""

import math
from functools import partial

import torch
import triton
import triton.language as tl

from isobit.ops.activation.triton_functions import _magnitude, _real
from isobit.ops.rmsnorm.triton_statistics import _squares
from isobit.ops.triton_norm_rows import (
    BLOCK,
    Source,
    columns,
    is_in_range,
    load,
    power_of_two,
    scaling_exponent,
    sum_and_dot,
    tile_of,
)
from isobit.ops.triton_variants import Launch, Variant, by_name, fitting, store

_HELD, _STREAMED = 16384, 4096  # columns of a tile
_ELEMENTS = 32  # of a tile that a thread has, up to 16 warps
_MOST_TILES = 1024  # of a row, whose sums a program keeps
_INFINITY = tl.constexpr(float("inf"))


@triton.jit
def _most_bits(x):
    """As integers, magnitudes are in the same order, and a NaN is the largest of all."""
    return tl.max(_magnitude(x).to(tl.int32, bitcast=True))


@triton.jit
def _largest(held, source, cols, tile: tl.constexpr):
    """NaN where an element is; 0 of no elements."""
    most = _most_bits(held.x)
    if tile.chunks > 1:
        for chunk in range(1, tl.cdiv(cols, tile.blocks * BLOCK)):
            at = columns(chunk, tile)
            most = tl.maximum(most, _most_bits(load(source, at, at < cols).x))
    return _real(most)


@triton.jit
def _magnitudes(_known, elements, inside):
    size = _magnitude(elements.x)
    return size, size


@triton.jit
def length_of(held, source, cols, tile: tl.constexpr):
    """The root of the squares' sum times a power of two, and that power's exponent."""
    one = tl.cast(1.0, tl.float32)
    squares = _squares(one, one, held, source, cols, tile)
    root, exponent = tl.sqrt_rn(squares), tl.cast(0, tl.int32)
    if is_in_range(squares) == 0:
        root = _largest(held, source, cols, tile)
        if (root > 0.0) & (root < _INFINITY):
            exponent = scaling_exponent(root, tl.cast(0.0, tl.float32))
            factor, again = factors_of(exponent)
            root = tl.sqrt_rn(_squares(factor, again, held, source, cols, tile))
    return root, exponent


@triton.jit
def factors_of(exponent):
    """Two of a power of two that no number holds."""
    return power_of_two(exponent // 2), power_of_two(exponent - exponent // 2)


@triton.jit
def _root(held, source, cols, tile: tl.constexpr):
    root, exponent = length_of(held, source, cols, tile)
    factor, again = factors_of(0 - exponent)
    return root * factor * again


@triton.jit
def _norm(x, norm, cols, ORDER: tl.constexpr, tile: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    source = Source(x + row * cols, None, None, None, None)
    at = columns(0, tile)
    held = load(source, at, at < cols)
    if ORDER == "max":
        found = _largest(held, source, cols, tile)
    elif ORDER == "l1":
        found, _ = sum_and_dot(_magnitudes, None, held, source, cols, tile)
    else:
        found = _root(held, source, cols, tile)
    store(norm, row, found, True)


def _make(most, plan, x, norm, order="l2"):
    if order not in ("l2", "l1", "max"):
        raise ValueError(f"vector_norm: order is {order!r}; allowed: l2, l1, max")
    if norm.dtype != torch.float32:
        raise ValueError(f"vector_norm: norm is {norm.dtype}; must be {torch.float32}")
    arguments = {"x": x, "norm": norm, "cols": x.shape[-1], "ORDER": order}
    arguments["tile"] = tile_of(x.shape[-1], most)
    yield Launch(_norm, (math.prod(x.shape[:-1]),), arguments, plan["warps"])


def _choose(most, case):
    return {"warps": tile_of(case.shapes["x"][-1], most).warps(_ELEMENTS)}


def _up_to(most, holder, case):
    if "f64" in case.dtypes.values():
        return "it computes in float, not in f64"
    if not case.shapes["x"]:
        return "x has no dimension"
    cols = case.shapes["x"][-1]
    return f"{cols} columns; {holder} at most {most}" if cols > most else ""


def _variant(name, most, tiles, holder):
    """Of rows of so many tiles."""
    return Variant(
        name=name,
        kinds=("fwd",),
        takes=frozenset({"x", "norm", "order"}),
        make=partial(_make, most),
        knobs={"warps": (1, 2, 4, 8, 16)},
        choose=partial(_choose, most),
        declines=partial(_up_to, most * tiles, holder),
        fits=fitting("vector_norm"),
    )


VARIANTS = by_name(
    _variant("row_per_program", _HELD, 1, "registers hold"),
    _variant("streamed", _STREAMED, _MOST_TILES, "a program keeps the sums of"),
)
