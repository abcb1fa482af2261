# SPDX-License-Identifier: Apache-2.0
"""Sums over rows in Triton, in the order of core/order.h: runs of 16 rows, then adjacent pairs."""

import torch
import triton
import triton.language as tl

from isobit.ops.triton_variants import Launch, parts, store, widened

RUN = tl.constexpr(16)
_FOLDED, _FOLDED_COLUMNS = 128, 32  # sums that a program folds, and of how many columns


@triton.jit
def pairs(x):
    """Folds the first axis of [count, inner] by adjacent pairs.

    Zeros in the place of what a tree lacks change no more than the sign of a zero.
    """
    for _ in tl.static_range(20):
        if x.shape[0] > 1:
            x = tl.sum(tl.reshape(x, [x.shape[0] // 2, 2, x.shape[1]]), 1)
    return tl.reshape(x, [x.shape[1]])


@triton.jit
def fold_kernel(sums, totals, count, cols, step, COUNT: tl.constexpr, COLUMNS: tl.constexpr):
    """A program folds some columns of COUNT adjacent sums, an aligned subtree of the order."""
    group = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    i = group * COUNT + tl.arange(0, COUNT)[:, None]
    inside = (i < count) & (at[None, :] < cols)
    total = pairs(widened(sums, i * cols + at[None, :], inside)) + 0.0
    store(totals + group * cols, at.to(tl.int64) * step, total, at < cols)


def folds(sums, count, total):
    """Folds sums of all columns, the first `count` rows of `sums`, until one is left: `total`,
    whose elements may lie apart."""
    cols = sums.shape[-1]
    while True:
        groups = max(1, parts(count, _FOLDED))
        totals = total if groups == 1 else torch.empty_like(sums[:groups])
        arguments = {"sums": sums, "totals": totals, "count": count, "cols": cols}
        arguments |= {"step": totals.stride(-1), "COUNT": _FOLDED, "COLUMNS": _FOLDED_COLUMNS}
        yield Launch(fold_kernel, (groups, parts(cols, _FOLDED_COLUMNS)), arguments)
        if groups == 1:
            return
        sums, count = totals, groups


@triton.jit
def push(nodes, node, run):
    """Adds the sum of a run to those of all runs before it, by adjacent pairs: the nodes of their
    tree stand as a binary counter holds its ones."""
    level = tl.arange(0, nodes.shape[0])[:, None]
    place = 0
    while (run >> place & 1) == 1:
        held = tl.where(level == place, nodes, tl.zeros_like(nodes))
        node = tl.sum(held, 0) + node
        place += 1
    return tl.where(level == place, node[None, :], nodes)


@triton.jit
def total_of(nodes, runs):
    level = tl.arange(0, nodes.shape[0])[:, None]
    total = tl.zeros([nodes.shape[1]], nodes.dtype)
    for place in tl.static_range(nodes.shape[0]):
        held = (level == place) & ((runs >> place & 1) == 1)
        total = tl.sum(tl.where(held, nodes, tl.zeros_like(nodes)), 0) + total
    return total
