# SPDX-License-Identifier: Apache-2.0
"""transpose in Triton, of contiguous matrices, with the bits of all other variants.

What keeps its dtype keeps its bytes; else each element is rounded once.
"""

import triton
import triton.language as tl

from isobit.ops.triton_variants import (
    Launch,
    Variant,
    by_name,
    fitting,
    parts,
    rounded_to_odd,
    store,
)


@triton.jit
def _single(value):
    if value.dtype == tl.bfloat16:
        # In integers, since Triton's interpreter loses this type's subnormal numbers.
        bits = value.to(tl.uint16, bitcast=True).to(tl.uint32) << 16
        single = bits.to(tl.float32, bitcast=True)
    else:
        single = value.to(tl.float32)
    return single


@triton.jit
def _put(y, at, value, inside):
    """Stores values of x as y has them."""
    if value.dtype == y.dtype.element_ty:
        tl.store(y + at, value, mask=inside)
    elif y.dtype.element_ty.primitive_bitwidth == 64:
        store(y, at, _single(value).to(tl.float64), inside)
    elif value.dtype.primitive_bitwidth == 64 and y.dtype.element_ty.primitive_bitwidth == 16:
        store(y, at, rounded_to_odd(value), inside)
    else:
        store(y, at, _single(value), inside)


@triton.jit
def _tiles(x, y, rows, cols, size, down, across, SIDE: tl.constexpr):
    """A square a program; Triton turns it by way of shared memory."""
    index = tl.program_id(0).to(tl.int64)
    line = index // across
    matrix = line // down
    col = (index - line * across) * SIDE + tl.arange(0, SIDE)
    row = (line - matrix * down) * SIDE + tl.arange(0, SIDE)
    x += matrix * size
    y += matrix * size
    inside = (row < rows)[:, None] & (col < cols)[None, :]
    value = tl.load(x + (row[:, None] * cols + col[None, :]), mask=inside)
    _put(y, col[:, None] * rows + row[None, :], tl.trans(value), tl.trans(inside))


@triton.jit
def _elements(x, y, rows, cols, size, count, BLOCK: tl.constexpr):
    """Elements as they lie in y."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    matrix = at // size
    left = at - matrix * size
    col = left // rows
    row = left - col * rows
    inside = at < count
    _put(y, at, tl.load(x + (matrix * size + row * cols + col), mask=inside), inside)


def _tiled(plan, x, y):
    rows, cols = x.shape[-2:]
    side = 32 if max(x.itemsize, y.itemsize) == 8 else 64
    down, across = parts(rows, side), parts(cols, side)
    matrices = x.numel() // (rows * cols) if rows * cols else 0
    sizes = {"rows": rows, "cols": cols, "size": rows * cols, "down": down, "across": across}
    arguments = {"x": x, "y": y, **sizes, "SIDE": side}
    yield Launch(_tiles, (matrices * down * across,), arguments, plan["warps"])


def _naive(plan, x, y):
    rows, cols = x.shape[-2:]
    block = 32 * plan["warps"]
    sizes = {"rows": rows, "cols": cols, "size": rows * cols, "count": x.numel()}
    grid = (parts(x.numel(), block),)
    yield Launch(_elements, grid, {"x": x, "y": y, **sizes, "BLOCK": block}, plan["warps"])


def _variant(name, make):
    return Variant(
        name=name,
        kinds=("fwd",),
        takes=frozenset({"x", "y"}),
        make=make,
        knobs={"warps": (1, 2, 4, 8)},
        fits=fitting("transpose"),
        choose=lambda case: {"warps": 4},
    )


VARIANTS = by_name(_variant("tiled", _tiled), _variant("naive", _naive))
