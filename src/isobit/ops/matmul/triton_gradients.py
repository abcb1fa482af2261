# SPDX-License-Identifier: Apache-2.0
"""Gradients of products in Triton: s once, as an array; the products by forward's kernels; and sums
of columns of s."""

import math

import torch
import triton
import triton.language as tl

from isobit.ops.activation.triton_functions import gradient
from isobit.ops.matmul.triton_products import arrays_of, forward, start
from isobit.ops.triton_sums import RUN, folds, pairs
from isobit.ops.triton_variants import (
    Launch,
    bits_of,
    narrow,
    parts,
    scalar,
    store,
    wide,
    widened,
)

_RUNS, _COLUMNS = 4, 128  # of s, that a program takes


@triton.jit
def _slope(grad, x, ACTIVATION: tl.constexpr):
    """grad activation'(x). A NaN has no slope for relu: there it is grad."""
    if ACTIVATION == "relu":
        result = tl.where(x <= 0.0, 0.0, grad)
    else:
        result = gradient(grad, x, ACTIVATION)
    return result


@triton.jit
def _rows(
    grad_y,
    pre,
    grad_c,
    slopes,
    sums,
    extents,
    m,
    n,
    rows,
    beta,
    ACTIVATION: tl.constexpr,
    ADDED: tl.constexpr,
    RUNS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A program takes some columns of some runs, a row of each run at a time. s goes to `slopes`,
    its sums to `sums`; what is not wanted is None. ADDED: whether forward adds c."""
    group = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    first = (group * RUNS + tl.arange(0, RUNS)[:, None]) * RUN
    real: tl.constexpr = tl.float64 if grad_y.data.dtype.element_ty == tl.float64 else tl.float32
    total = tl.zeros([RUNS, COLUMNS], real)
    for step in range(tl.minimum(rows - group * (RUNS * RUN), RUN)):
        row = first + step
        inside = (row < rows) & (col < n)
        product = row // m
        i = row - product * m
        s = widened(start(grad_y, extents, product), i * grad_y.row + col * grad_y.col, inside)
        if pre is not None:
            x = widened(start(pre, extents, product), i * pre.row + col * pre.col, inside)
            s = wide(narrow(_slope(s, x, ACTIVATION), grad_y.data.dtype.element_ty))
        if slopes is not None:
            store(slopes, row * n + col, s, inside)
        if grad_c is not None:
            of_c = scalar(beta, s) * ((s + 0.0) if ADDED else tl.zeros_like(s))
            store(start(grad_c, extents, product), i * grad_c.row + col * grad_c.col, of_c, inside)
        total += tl.where(inside, s, 0.0)
    if sums is not None:
        col = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
        tl.store(sums + group * n + col, pairs(total), mask=col < n)


def backward(
    plan,
    grad_y,
    a,
    b,
    pre=None,
    grad_a=None,
    grad_b=None,
    grad_bias=None,
    grad_c=None,
    alpha=1,
    beta=0,
    activation="none",
):
    bends = activation != "none"
    if bends and pre is None:
        raise ValueError(f"matmul: activation is {activation}, but pre is not given")
    n = grad_y.shape[-1]
    rows = math.prod(grad_y.shape[:-1])
    slopes = sums = None
    if (bends or grad_y.dtype != a.dtype) and not (grad_a is None and grad_b is None):
        slopes = a.new_empty(grad_y.shape)
    groups = parts(rows, _RUNS * RUN.value)
    if grad_bias is not None:
        real = a.dtype if a.itemsize > 4 else torch.float32
        sums = a.new_empty((groups, n), dtype=real)
    if not (slopes is None and sums is None and grad_c is None):
        tensors = {"y": grad_y, "pre": pre if bends else None, "grad_c": grad_c}
        arrays, extents, m = arrays_of({k: t for k, t in tensors.items() if t is not None})
        arguments = {"grad_y": arrays["y"], "pre": arrays.get("pre"), "slopes": slopes}
        arguments |= {"grad_c": arrays.get("grad_c"), "sums": sums, "extents": extents}
        arguments |= {"m": m, "n": n, "rows": rows, "ACTIVATION": activation}
        arguments |= {"beta": bits_of(beta, a.dtype), "ADDED": beta != 0}
        arguments |= {"RUNS": _RUNS, "COLUMNS": _COLUMNS}
        yield Launch(_rows, (groups, parts(n, _COLUMNS)), arguments)
    if grad_bias is not None:
        yield from folds(sums, groups, grad_bias)
    s = grad_y if slopes is None else slopes
    if grad_a is not None:
        yield from forward(plan, s, b.mT, grad_a, alpha=alpha)
    if grad_b is not None:
        yield from forward(plan, a.mT, s, grad_b, alpha=alpha)
