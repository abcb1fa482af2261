# SPDX-License-Identifier: Apache-2.0
"""dropout in Triton, with the bits of all other variants. No GPU has run it yet: Triton's
interpreter has.

    VARIANTS["fours"].run(x=x, y=y, p=0.1, dropout_seed=7)
"""

import math

import triton
import triton.language as tl

from isobit.ops.triton_random import words
from isobit.ops.triton_variants import (
    Launch,
    Variant,
    bits_of,
    by_name,
    parts,
    scalar,
    store,
    widened,
)


@triton.jit
def _fours(x, y, cols, seed, threshold, scale, GROUPS: tl.constexpr):
    """A program takes so many groups of four columns of a row; a lane makes the words of one."""
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1).to(tl.int64) * GROUPS
    word = words(seed, first + tl.arange(0, GROUPS), row, row >> 32)
    col = 4 * first + tl.arange(0, 4 * GROUPS)
    inside = col < cols
    value = widened(x + row * cols, col, inside)
    kept = word.to(tl.int64) >= threshold
    # Not a product with 0: what is dropped may be infinite.
    value = tl.where(kept, value * scalar(scale, value), 0.0)
    store(y + row * cols, col, value, inside)


def _make(plan, x, y, p=0.5, dropout_seed=0):
    p, seed, cols = float(p), int(dropout_seed), x.shape[-1]
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: p is {p}; allowed: 0 to 1")
    if not 0 <= seed < 2**64:
        raise ValueError(f"dropout: dropout_seed is {seed}; allowed: 0 to 2^64 - 1")
    for what, of_y, of_x in (("is", y.dtype, x.dtype), ("has shape", y.shape, x.shape)):
        if of_y != of_x:
            raise ValueError(f"dropout: y {what} {of_y}; must be {of_x}, as x")
    scale = 1 / (1 - p) if p < 1 else math.inf
    groups = min(32 * plan["warps"], triton.next_power_of_2(max(parts(cols, 4), 1)))
    arguments = {"x": x, "y": y, "cols": cols, "seed": seed, "threshold": int(p * 2**32)}
    arguments |= {"scale": bits_of(scale, x.dtype), "GROUPS": groups}
    grid = (math.prod(x.shape[:-1]), parts(cols, 4 * groups))
    yield Launch(_fours, grid, arguments, plan["warps"])


VARIANTS = by_name(
    Variant(
        name="fours",
        kinds=("fwd",),
        takes=frozenset({"x", "y", "p", "dropout_seed"}),
        make=_make,
        knobs={"warps": (1, 2, 4, 8)},
        choose=lambda case: {"warps": 4},
        declines=lambda case: "" if case.shapes["x"] else "x has no dimension",
    ),
)
