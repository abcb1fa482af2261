# SPDX-License-Identifier: Apache-2.0
"""Products in Triton, of arrays of any strides, in the order of core/order.h and so with the bits
of all other variants.

tl.dot promises no order, so products are added k after k.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from isobit.ops.activation.triton_functions import function_of
from isobit.ops.triton_sums import push, total_of
from isobit.ops.triton_variants import Launch, bits_of, parts, scalar, store, walked, widened

PANEL, RUN = tl.constexpr(512), tl.constexpr(16 * 512)  # k
_BLOCK = 128  # elements whose runs a program adds up


class Array(NamedTuple):
    """Where the elements of an argument lie; `steps` belong to the loops around the products."""

    data: Any
    row: int
    col: int
    steps: tuple[int, ...]


@triton.jit
def start(array, extents, product):
    """Where a product's elements begin."""
    return array.data + walked(extents, array.steps, product)


@triton.jit
def finish(
    value,
    bias,
    c,
    residual,
    y,
    pre,
    extents,
    product,
    row,
    col,
    inside,
    alpha,
    beta,
    ACTIVATION: tl.constexpr,
):
    """What becomes of sums; what is not given is None."""
    if alpha is not None:
        value = scalar(alpha, value) * value
    if c is not None:
        other = widened(start(c, extents, product), row * c.row + col * c.col, inside)
        value = tl.fma(scalar(beta, value), other, value)
    if bias is not None:
        value = value + widened(bias.data, row * 0 + col * bias.col, inside)
    if pre is not None:
        store(start(pre, extents, product), row * pre.row + col * pre.col, value, inside)
    if ACTIVATION == "relu":
        value = tl.where(value < 0.0, 0.0, value)
    elif ACTIVATION != "none":
        value = function_of(value, ACTIVATION)
    if residual is not None:
        at = row * residual.row + col * residual.col
        value = value + widened(start(residual, extents, product), at, inside)
    store(start(y, extents, product), row * y.row + col * y.col, value, inside)


@triton.jit
def _tiles(
    a,
    b,
    bias,
    c,
    residual,
    y,
    pre,
    sums,
    extents,
    m,
    n,
    k,
    runs,
    down,
    across,
    alpha,
    beta,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """A tile of a product and a run of its k a program. Where there are several runs, their sums
    wait in `sums`.

    A run begins with +0, so no sum is -0, and the +0 that the order adds last changes nothing.
    """
    index = tl.program_id(0).to(tl.int64)
    line = index // across
    of_run = line // down
    product = of_run // runs
    run = of_run - product * runs
    row = (line - of_run * down) * ROWS + tl.arange(0, DOWN)[None, None, :, None]
    row += tl.arange(0, ROWS // DOWN)[:, None, None, None] * DOWN
    col = (index - line * across) * COLS + tl.arange(0, ACROSS)[None, None, None, :]
    col += tl.arange(0, COLS // ACROSS)[None, :, None, None] * ACROSS
    a_rows = start(a, extents, product) + row * a.row
    b_cols = start(b, extents, product) + col * b.col
    row_inside, col_inside = row < m, col < n
    wide: tl.constexpr = tl.float64 if a.data.dtype.element_ty == tl.float64 else tl.float32
    total = tl.zeros([ROWS // DOWN, COLS // ACROSS, DOWN, ACROSS], wide)
    begin = run * RUN
    end = tl.minimum(begin + RUN, k)
    for panel in range(begin, end, PANEL):
        chain = tl.zeros_like(total)
        for at in range(panel, tl.minimum(panel + PANEL, end)):
            of_rows = widened(a_rows, at * a.col, row_inside)
            chain = tl.fma(of_rows, widened(b_cols, at * b.row, col_inside), chain)
        total = total + chain
    inside = row_inside & col_inside
    if sums is None:
        finish(
            *(total, bias, c, residual, y, pre, extents, product),
            *(row, col, inside, alpha, beta, ACTIVATION),
        )
    else:
        tl.store(sums + ((of_run * m + row) * n + col), total, mask=inside)


@triton.jit
def add_runs(
    sums,
    bias,
    c,
    residual,
    y,
    pre,
    extents,
    m,
    n,
    runs,
    blocks,
    alpha,
    beta,
    ACTIVATION: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The sums of runs, added by adjacent pairs."""
    index = tl.program_id(0).to(tl.int64)
    product = index // blocks
    at = (index - product * blocks) * BLOCK + tl.arange(0, BLOCK)
    size = tl.full([], m, tl.int64) * n
    inside = at < size
    sums += product * runs * size
    nodes = tl.zeros([LEVELS, BLOCK], sums.dtype.element_ty)
    for run in range(0, runs):
        nodes = push(nodes, tl.load(sums + run * size + at, mask=inside, other=0), run)
    total = total_of(nodes, runs)
    row = at // n
    finish(
        *(total, bias, c, residual, y, pre, extents, product),
        *(row, at - row * n, inside, alpha, beta, ACTIVATION),
    )


def levels_for(runs):
    """Of the tree that adds them."""
    return triton.next_power_of_2(max(runs, 1).bit_length())


def adding(sums, products, runs, arguments):
    """The launch that adds the runs of products; of `add_runs` the other arguments."""
    blocks = parts(arguments["m"] * arguments["n"], _BLOCK)
    sizes = {"runs": runs, "blocks": blocks, "LEVELS": levels_for(runs), "BLOCK": _BLOCK}
    return Launch(add_runs, (products * blocks,), {"sums": sums, **arguments, **sizes})


def _loops(tensors):
    """(extent, steps of the arrays) of the loops around the products, the outermost first: as one
    where every array moves on evenly."""
    loops = []
    for dim, extent in enumerate(tensors["y"].shape[:-2]):
        steps = {name: t.stride(dim) if t.dim() > 1 else 0 for name, t in tensors.items()}
        if extent == 1:
            continue
        if loops and all(loops[-1][1][name] == step * extent for name, step in steps.items()):
            extent *= loops.pop()[0]
        loops.append((extent, steps))
    return loops


def arrays_of(tensors):
    """The arrays, the loops' extents from the innermost on, and the rows of a product. Rows that
    share one b are those of one product."""
    m = tensors["y"].shape[-2]
    loops = _loops(tensors)
    rows = {name: t.stride(-2) if t.dim() > 1 else 0 for name, t in tensors.items()}
    if loops and loops[-1][1].get("b", 0) == 0:
        extent, steps = loops[-1]
        moving = tensors.keys() - {"b", "bias"}
        if m == 1:
            rows |= {name: steps[name] for name in moving}
        if all(steps[name] == rows[name] * m for name in moving):
            m *= extent
            loops.pop()
    loops = loops[::-1] or [(1, dict.fromkeys(tensors, 0))]
    arrays = {
        name: Array(t, rows[name], t.stride(-1), tuple(steps[name] for _, steps in loops))
        for name, t in tensors.items()
    }
    return arrays, tuple(extent for extent, _ in loops), m


def forward(
    plan,
    a,
    b,
    y,
    bias=None,
    c=None,
    residual=None,
    pre=None,
    alpha=1,
    beta=0,
    activation="none",
):
    if beta != 0 and c is None:
        raise ValueError(f"matmul: beta is {beta}, but c is not given")
    k, n = b.shape[-2:]
    given = {"a": a, "b": b, "bias": bias, "residual": residual, "y": y, "pre": pre}
    given["c"] = None if beta == 0 else c
    tensors = {name: tensor for name, tensor in given.items() if tensor is not None}
    arrays, extents, m = arrays_of(tensors)
    arrays = dict.fromkeys(given) | arrays
    products = y.numel() // (m * n) if m * n else 0
    runs = max(parts(k, RUN.value), 1)
    down, across = parts(m, plan["rows"]), parts(n, plan["cols"])
    sums = None
    if runs > 1:
        wide = a.dtype if a.itemsize > 4 else torch.float32
        sums = torch.empty(products * runs * m * n, dtype=wide, device=a.device)
    sizes = {"extents": extents, "m": m, "n": n, "runs": runs}
    one = bits_of(1, a.dtype)
    scale = bits_of(alpha, a.dtype)
    last = {
        "alpha": None if scale == one else scale,
        "beta": None if beta == 0 else bits_of(beta, a.dtype),
        "ACTIVATION": activation,
    }
    arguments = {**arrays, **sizes, **last, "sums": sums, "k": k, "down": down, "across": across}
    arguments |= {"ROWS": plan["rows"], "COLS": plan["cols"]}
    arguments |= {"DOWN": 2 * plan["warps"], "ACROSS": 16}
    yield Launch(_tiles, (products * runs * down * across,), arguments, plan["warps"])
    if runs == 1:
        return
    outputs = {name: array for name, array in arrays.items() if name not in ("a", "b")}
    yield adding(sums, products, runs, {**outputs, **sizes, **last})
