# SPDX-License-Identifier: Apache-2.0
"""Running sums in Triton, of contiguous arrays, in the order of formula_order.h and so with the
bits of all other variants.

A node of the tree that is zero may lose its sign, which no result shows: each begins with +0.
"""

from itertools import pairwise

import torch
import triton
import triton.language as tl

from isobit.ops.triton_variants import Launch, Variant, by_name, fitting, parts, store, widened

_GROUP, _GROUPS = tl.constexpr(16), tl.constexpr(32)  # elements, and what a block has of them
_BLOCK = tl.constexpr(16 * 32)
_LEVELS = tl.constexpr(64)  # of a tree of blocks: more elements than an array has
_PAIRS = 512  # that a program adds up


@triton.jit
def _sklansky(values, place, LEVELS: tl.constexpr, AXIS: tl.constexpr):
    """Inclusive scans of 2^LEVELS: what stands in an upper half gets the last of the lower."""
    for level in tl.static_range(LEVELS):
        last = tl.maximum((place >> level << level) - 1, 0)
        before = tl.gather(values, tl.broadcast_to(last, values.shape), AXIS)
        values = tl.where((place >> level & 1) == 1, before + values, values)
    return values


@triton.jit
def _elements(block):
    """The place of a block's elements along what is scanned, a group a line."""
    group, element = tl.arange(0, _GROUPS), tl.arange(0, _GROUP)
    return block * _BLOCK + group[:, None] * _GROUP + element[None, :]


@triton.jit
def _loaded(x, place, length, inner, like, REVERSE: tl.constexpr):
    at = length - 1 - place if REVERSE else place
    values = widened(x, at * inner, place < length)
    if like.dtype.element_ty.primitive_bitwidth > 16:
        values = values.to(like.dtype.element_ty)
    return values


@triton.jit
def _scanned(values):
    """L of a block's elements, E of its groups, and its total."""
    group, element = tl.arange(0, _GROUPS)[:, None], tl.arange(0, _GROUP)[None, :]
    local = _sklansky(values, element, 4, 1)
    totals = tl.gather(local, tl.full([_GROUPS, 1], _GROUP - 1, tl.int32), 1)
    totals = _sklansky(totals, group, 5, 0)
    before = tl.gather(totals, tl.maximum(group - 1, 0), 0)
    before = tl.where(group > 0, before, tl.zeros_like(before))
    last = tl.where(group == _GROUPS - 1, totals, tl.zeros_like(totals))
    return local, before, tl.sum(last)


@triton.jit
def _write(y, init, results, place, length, inner, REVERSE: tl.constexpr, EXCLUSIVE: tl.constexpr):
    """Results where they belong, with what comes before them all."""
    one = tl.arange(0, 1)
    start = tl.zeros([1], results.dtype)
    if init is not None:
        start = widened(init, one, one == 0)
        results = start[:, None] + results
    if EXCLUSIVE:
        place += 1
        at = length - 1 + one if REVERSE else one
        store(y, at * inner, start, (tl.min(place) + one) == 1)
    at = length - 1 - place if REVERSE else place
    store(y, at * inner, results, place < length)


@triton.jit
def _rows(
    x,
    init,
    y,
    length,
    inner,
    REVERSE: tl.constexpr,
    EXCLUSIVE: tl.constexpr,
):
    """A row a program, block after block. The totals of those before stand in a tree as a binary
    counter holds its ones."""
    row = tl.program_id(0).to(tl.int64)
    first = row // inner * length * inner + row % inner
    x += first
    y += first
    if init is not None:
        init += row
    level = tl.arange(0, _LEVELS)
    narrow: tl.constexpr = y.dtype.element_ty.primitive_bitwidth == 16
    nodes = tl.zeros([_LEVELS], tl.float32 if narrow else y.dtype.element_ty)
    for block in range(0, tl.cdiv(length, _BLOCK)):
        place = _elements(tl.full([], block, tl.int64))
        local, before, node = _scanned(_loaded(x, place, length, inner, y, REVERSE))
        carry = tl.sum(tl.zeros([1], nodes.dtype))
        at = 0
        while block >> at != 0:
            held = (level == at) & ((block >> at & 1) == 1)
            carry = tl.sum(tl.where(held, nodes, tl.zeros_like(nodes))) + carry
            at += 1
        _write(y, init, (carry + before) + local, place, length, inner, REVERSE, EXCLUSIVE)
        at = 0
        while (block >> at & 1) == 1:
            node = tl.sum(tl.where(level == at, nodes, tl.zeros_like(nodes))) + node
            at += 1
        nodes = tl.where(level == at, node, nodes)


@triton.jit
def _totals(x, nodes, length, inner, blocks, stored, REVERSE: tl.constexpr):
    """A block a program: the lowest nodes of each row's tree."""
    index = tl.program_id(0).to(tl.int64)
    row = index // blocks
    block = index - row * blocks
    x += row // inner * length * inner + row % inner
    _, _, total = _scanned(_loaded(x, _elements(block), length, inner, nodes, REVERSE))
    tl.store(nodes + row * stored + block, total)


@triton.jit
def _pairs(nodes, below, above, count, stored, PAIRS: tl.constexpr):
    """Nodes of a level, from those below."""
    at = tl.program_id(1) * PAIRS + tl.arange(0, PAIRS)
    nodes += tl.program_id(0).to(tl.int64) * stored
    left = tl.load(nodes + below + 2 * at, mask=at < count)
    right = tl.load(nodes + below + 2 * at + 1, mask=at < count)
    tl.store(nodes + above + at, left + right, mask=at < count)


@triton.jit
def _results(
    x,
    init,
    nodes,
    y,
    length,
    inner,
    blocks,
    stored,
    REVERSE: tl.constexpr,
    EXCLUSIVE: tl.constexpr,
):
    """A block a program, which adds up the nodes that its number names."""
    index = tl.program_id(0).to(tl.int64)
    row = index // blocks
    block = index - row * blocks
    first = row // inner * length * inner + row % inner
    if init is not None:
        init += row
    place = _elements(block)
    local, before, _ = _scanned(_loaded(x + first, place, length, inner, nodes, REVERSE))
    carry = tl.sum(tl.zeros([1], nodes.dtype.element_ty))
    nodes += row * stored
    count = tl.full([], 0, tl.int64) + blocks
    while block > 0:
        carry = tl.load(nodes + block - 1, mask=(block & 1) == 1, other=0) + carry
        nodes += count
        count >>= 1
        block >>= 1
    _write(y + first, init, (carry + before) + local, place, length, inner, REVERSE, EXCLUSIVE)


def _sizes(x, y, exclusive):
    """Rows, and the arguments that kernels share."""
    length, inner = x.shape[-2:]
    if exclusive and x.numel() and x.data_ptr() == y.data_ptr() and x.device.type != "meta":
        raise ValueError("scan: y is x, whose next element an exclusive scan overwrites")
    return x.numel() // length if length else 0, {"length": length, "inner": inner}


def _row_per_program(plan, x, y, init=None, exclusive="no", reverse="no"):
    rows, sizes = _sizes(x, y, exclusive == "yes")
    flags = {"REVERSE": reverse == "yes", "EXCLUSIVE": exclusive == "yes"}
    arguments = {"x": x, "init": init, "y": y, **sizes, **flags}
    yield Launch(_rows, (rows,), arguments, plan["warps"])


def _reduce_then_scan(plan, x, y, init=None, exclusive="no", reverse="no"):
    rows, sizes = _sizes(x, y, exclusive == "yes")
    blocks = parts(sizes["length"], _BLOCK.value)
    levels = [blocks >> level for level in range(blocks.bit_length())]
    computed = y.dtype if y.itemsize > 2 else torch.float32
    nodes = torch.empty(rows, sum(levels), dtype=computed, device=x.device)
    sizes |= {"blocks": blocks, "stored": sum(levels)}
    turned = {"REVERSE": reverse == "yes"}
    arguments = {"x": x, "nodes": nodes, **sizes, **turned}
    yield Launch(_totals, (rows * blocks,), arguments, plan["warps"])
    below = 0
    for count, more in pairwise(levels):
        arguments = {"nodes": nodes, "below": below, "above": below + count, "count": more}
        arguments |= {"stored": sum(levels), "PAIRS": _PAIRS}
        yield Launch(_pairs, (rows, parts(more, _PAIRS)), arguments)
        below += count
    arguments = {"x": x, "init": init, "nodes": nodes, "y": y, **sizes, **turned}
    arguments |= {"EXCLUSIVE": exclusive == "yes"}
    yield Launch(_results, (rows * blocks,), arguments, plan["warps"])


def _variant(name, make):
    return Variant(
        name=name,
        kinds=("sum",),
        takes=frozenset({"x", "init", "y", "exclusive", "reverse"}),
        make=make,
        knobs={"warps": (1, 2, 4)},
        fits=fitting("scan"),
        choose=lambda case: {"warps": 1},
    )


VARIANTS = by_name(
    _variant("row_per_program", _row_per_program),
    _variant("reduce_then_scan", _reduce_then_scan),
)
