# SPDX-License-Identifier: Apache-2.0
"""The forward pass of norms in Triton: rows in registers, or read for each sum and once more."""

import triton
import triton.language as tl

from isobit.ops.triton_norm_rows import (
    BLOCK,
    Source,
    columns,
    load,
    normalised,
)
from isobit.ops.triton_variants import store, widened


@triton.jit
def forward_kernel(
    x,
    weight,
    bias,
    y,
    mean,
    rstd,
    cols,
    eps,
    statistics_of: tl.constexpr,
    tile: tl.constexpr,
):
    """A program takes a row."""
    row = tl.program_id(0).to(tl.int64)
    source = Source(x + row * cols, None, None, None, None)
    y += row * cols
    at = columns(0, tile)
    held = load(source, at, at < cols)
    found = statistics_of(held, source, cols, eps, tile)
    if mean is not None:
        store(mean, row, found.saved_mean, True)
    if rstd is not None:
        store(rstd, row, found.saved_rstd, True)
    if tile.chunks == 1:
        _write(found, held.x, weight, bias, y, at, at < cols)
    else:
        for chunk in range(tl.cdiv(cols, tile.blocks * BLOCK)):
            at = columns(chunk, tile)
            elements = load(source, at, at < cols)
            _write(found, elements.x, weight, bias, y, at, at < cols)


@triton.jit
def _write(row, x, weight, bias, y, at, inside):
    """y = fma(x̂, weight, bias); an absent weight is 1, an absent bias -0."""
    result = normalised(row, x)
    if weight is not None and bias is not None:
        result = tl.fma(result, widened(weight, at, inside), widened(bias, at, inside))
    elif weight is not None:
        result *= widened(weight, at, inside)
    elif bias is not None:
        result += widened(bias, at, inside)
    store(y, at, result, inside)
