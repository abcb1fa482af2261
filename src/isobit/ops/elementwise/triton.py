# SPDX-License-Identifier: Apache-2.0
"""add and increment in Triton, with the bits of all other variants, for every dtype they have.

`shared` has no counterpart here: Triton offers no shared memory to go by way of.
"""

import triton
import triton.language as tl

from isobit.ops.triton_variants import Launch, Variant, by_name, fitting, parts, store, widened


@triton.jit
def _sum(x, residual, at, inside):
    value = widened(x, at, inside)
    if residual is None:
        value += 1
    else:
        value += widened(residual, at, inside)
    return value


@triton.jit
def _one_block(x, residual, y, count, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    at = first + tl.arange(0, BLOCK)
    if first + BLOCK <= count:  # a mask that is not constant would keep vectors away
        inside = tl.full([BLOCK], True, tl.int1)
        store(y, at, _sum(x, residual, at, inside), inside)
    else:
        store(y, at, _sum(x, residual, at, at < count), at < count)


@triton.jit
def _four_blocks(x, residual, y, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * (4 * BLOCK) + tl.arange(0, BLOCK)
    second, third, fourth = at + BLOCK, at + 2 * BLOCK, at + 3 * BLOCK
    # All four are read before the first is written, so that their ways to memory overlap.
    sum_1 = _sum(x, residual, at, at < count)
    sum_2 = _sum(x, residual, second, second < count)
    sum_3 = _sum(x, residual, third, third < count)
    sum_4 = _sum(x, residual, fourth, fourth < count)
    store(y, at, sum_1, at < count)
    store(y, second, sum_2, second < count)
    store(y, third, sum_3, third < count)
    store(y, fourth, sum_4, fourth < count)


def _launches(kernel, blocks, lane_bytes=None):
    """`blocks` a program; a lane has one element of each, or as many as fill `lane_bytes`."""

    def launches(plan, x, y, residual=None):
        warps = plan["warps"]
        block = 32 * warps * (lane_bytes // x.itemsize if lane_bytes else 1)
        grid = (parts(x.numel(), blocks * block),)
        arguments = {"x": x, "residual": residual, "y": y, "count": x.numel(), "BLOCK": block}
        yield Launch(kernel, grid, arguments, warps)

    return launches


def _variant(name, *way):
    return Variant(
        name=name,
        kinds=("add", "increment"),
        takes=frozenset({"x", "residual", "y"}),
        make=_launches(*way),
        knobs={"warps": (1, 2, 4, 8)},
        fits=fitting("elementwise"),
        choose=lambda case: {"warps": 4},
    )


VARIANTS = by_name(
    _variant("vec16", _one_block, 1, 4 * 16),  # four vectors of 16 bytes of each operand
    _variant("unrolled4", _four_blocks, 4),
    _variant("naive", _one_block, 1),
)
