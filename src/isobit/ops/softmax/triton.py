# SPDX-License-Identifier: Apache-2.0
"""softmax and its logarithm in Triton, with the bits of all other variants, but not of doubles.

    VARIANTS["row_per_program"].run(x=x, mask=mask, y=y, scale=0.7, log="yes")
    VARIANTS["streamed"].run(y=y, grad_y=grad_y, mask=mask, grad_x=grad_x, scale=0.7, log="yes")

Arrays are contiguous, and the last dimension is a row. y may be x; grad_x may be y or grad_y. The
arithmetic is that of formula.h. No GPU has run these kernels yet: Triton's interpreter has, and
ptxas takes them.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from isobit.ops.activation.triton_functions import (
    _at_least,
    _exponential,
    _negative,
    _number,
    function_of,
)
from isobit.ops.triton_norm_rows import (
    BLOCK,
    columns,
    minus_product,
    scalar,
    tile_dot,
    tile_of,
    tile_sum,
)
from isobit.ops.triton_sums import pairs
from isobit.ops.triton_variants import Launch, Variant, by_name, store, widened

_INFINITY = tl.constexpr(float("inf"))
_LOWEST = tl.constexpr(-3.4028234663852886e38)
_LEAST = tl.constexpr(-200.0)  # e to this is 0, whatever it is multiplied by

# Columns of a tile; with twice as many, ptxas spills registers [sm_90]. Of a logarithm, exponents
# stay there, each of two numbers.
_HELD, _HELD_OF_LOG, _HELD_OF_GRADIENTS = 32768, 8192, 16384
_STREAMED = 4096
_ELEMENTS = 32  # of a tile that a thread has, up to 16 warps
_MOST_TILES = 1024  # of a row, whose sums a program keeps


class Scale(NamedTuple):
    """A magnitude of two parts, None if it is 1; the sign is in what a kernel reads."""

    head: Any
    rest: Any

    @classmethod
    def of(cls, scale):
        size = abs(scale)
        head = float(np.float32(size))
        return cls(None, None) if size == 1 else cls(head, float(np.float32(size - head)))


class Found(NamedTuple):
    """Of one row: its largest element, what its weights are multiplied by, or the logarithm of
    their sum, and whether it has any element; None if no mask takes one away."""

    largest: tl.tensor
    factor: tl.tensor
    some: tl.tensor


@triton.jit
def _is_there(mask, at, inside):
    if mask is not None:
        inside = inside & (tl.load(mask + at, mask=inside, other=0) != 0)
    return inside


@triton.jit
def _elements(x, there, at, inside, NEGATIVE: tl.constexpr):
    """By the sign of the scale; where there is none, it is of no weight."""
    value = widened(x, at, inside)
    if NEGATIVE:
        value = value * -1.0
    return tl.where(there, value, -_INFINITY)


@triton.jit
def _exponent_of(x, largest, scale):
    """|scale| (x - largest), as nearly as two numbers can be."""
    less = _negative(largest)
    head = x + less
    of_less = head - x
    rest = (x - (head - of_less)) + (less - of_less)
    if scale.head is not None:
        difference = head
        head = difference * scale.head
        missed = tl.fma(difference, scale.head, _negative(head))
        rest = tl.fma(difference, scale.rest, tl.fma(rest, scale.head, missed))
    return head, rest


@triton.jit
def _weight_of(head, rest):
    """Of what is too small to be a number, the rest may be anything."""
    rest = tl.where(head < _LEAST, 0.0, rest)
    low, high, exponent = _exponential(_at_least(head, _LEAST), rest)
    return _number(1.0 + (low + high), exponent)


@triton.jit
def _log_of(head, rest, log_of_sum):
    """Never -0."""
    rest = tl.where(head < _LOWEST, 0.0, rest)
    return head + (rest - log_of_sum) + 0.0


@triton.jit
def _weights_sum(x, inside, largest, scale):
    head, rest = _exponent_of(x, largest, scale)
    return tile_sum(tl.where(inside, _weight_of(head, rest), 0.0))


@triton.jit
def _results(found, x, y, at, inside, scale, LOG: tl.constexpr):
    head, rest = _exponent_of(x, found.largest, scale)
    value = _log_of(head, rest, found.factor) if LOG else _weight_of(head, rest) * found.factor
    if found.some is not None:
        value = tl.where(found.some > 0, value, -_INFINITY if LOG else 0.0)
    store(y, at, value, inside)


@triton.jit
def _forward(
    x, mask, y, cols, scale, NEGATIVE: tl.constexpr, LOG: tl.constexpr, tile: tl.constexpr
):
    """A program takes a row, which it reads again if it is more than a tile."""
    first = tl.program_id(0).to(tl.int64) * cols
    x += first
    y += first
    if mask is not None:
        mask += first
    at = columns(0, tile)
    inside = at < cols
    there = _is_there(mask, at, inside)
    held = _elements(x, there, at, inside, NEGATIVE)
    # Whether it sees NaN or passes it over: the sum is NaN.
    largest, some = tl.max(held), tl.max(there.to(tl.int32))
    if tile.chunks == 1:
        total = _weights_sum(held, inside, largest, scale)
    else:
        chunks = tl.cdiv(cols, tile.blocks * BLOCK)
        for chunk in range(1, chunks):
            at = columns(chunk, tile)
            there = _is_there(mask, at, at < cols)
            more = tl.max(_elements(x, there, at, at < cols, NEGATIVE))
            largest = tl.where(more > largest, more, largest)
            some = tl.maximum(some, tl.max(there.to(tl.int32)))
        sums = tl.full([tile.chunks, 1], 0, tl.float32)
        for chunk in range(chunks):
            at = columns(chunk, tile)
            there = _is_there(mask, at, at < cols)
            elements = _elements(x, there, at, at < cols, NEGATIVE)
            here = tl.arange(0, tile.chunks)[:, None] == chunk
            sums = tl.where(here, _weights_sum(elements, at < cols, largest, scale), sums)
        total = scalar(pairs(sums))
    factor = function_of(total, "log") if LOG else tl.div_rn(tl.cast(1.0, tl.float32), total)
    found = Found(largest, factor, None if mask is None else some)
    if tile.chunks == 1:
        _results(found, held, y, at, inside, scale, LOG)
    else:
        for chunk in range(chunks):
            at = columns(chunk, tile)
            there = _is_there(mask, at, at < cols)
            elements = _elements(x, there, at, at < cols, NEGATIVE)
            _results(found, elements, y, at, at < cols, scale, LOG)


@triton.jit
def _of_gradients(y, grad_y, mask, at, inside):
    """y, its gradient, and where they are; zeros elsewhere."""
    there = _is_there(mask, at, inside)
    value = tl.where(there, widened(y, at, inside), 0.0)
    return value, tl.where(there, widened(grad_y, at, inside), 0.0), there


@triton.jit
def _gradients_sum(y, grad_y, LOG: tl.constexpr):
    return tile_sum(grad_y) if LOG else tile_dot(grad_y, y)


@triton.jit
def _gradients(total, y, grad_y, there, grad_x, at, inside, scale, LOG: tl.constexpr):
    if LOG:
        value = minus_product(function_of(y, "exp"), total, grad_y) * scale
    else:
        value = y * (grad_y - total) * scale
    store(grad_x, at, tl.where(there, value, 0.0), inside)


@triton.jit
def _backward(y, grad_y, mask, grad_x, cols, scale, LOG: tl.constexpr, tile: tl.constexpr):
    """As forward does, without a largest element."""
    first = tl.program_id(0).to(tl.int64) * cols
    y += first
    grad_y += first
    grad_x += first
    if mask is not None:
        mask += first
    if tile.chunks == 1:
        at = columns(0, tile)
        of_y, grad, there = _of_gradients(y, grad_y, mask, at, at < cols)
        total = _gradients_sum(of_y, grad, LOG) + 0.0
        _gradients(total, of_y, grad, there, grad_x, at, at < cols, scale, LOG)
    else:
        chunks = tl.cdiv(cols, tile.blocks * BLOCK)
        sums = tl.full([tile.chunks, 1], 0, tl.float32)
        for chunk in range(chunks):
            at = columns(chunk, tile)
            of_y, grad, _ = _of_gradients(y, grad_y, mask, at, at < cols)
            here = tl.arange(0, tile.chunks)[:, None] == chunk
            sums = tl.where(here, _gradients_sum(of_y, grad, LOG), sums)
        total = scalar(pairs(sums)) + 0.0
        for chunk in range(chunks):
            at = columns(chunk, tile)
            of_y, grad, there = _of_gradients(y, grad_y, mask, at, at < cols)
            _gradients(total, of_y, grad, there, grad_x, at, at < cols, scale, LOG)


def _check(wide_name, x_name, scale, log, **arrays):
    """`wide_name` is what may be f32 beside 16 bits of `x_name`."""
    if scale == 0:
        raise ValueError("softmax: scale is 0; must be another number, 1 for none")
    if not abs(scale) <= torch.finfo(torch.float32).max:
        raise ValueError(f"softmax: scale is {scale}; must be within the range of float")
    if log not in ("no", "yes"):
        raise ValueError(f"softmax: log is {log!r}; allowed: no, yes")
    x, wide = arrays[x_name], arrays[wide_name]
    for name, array in arrays.items():
        if array is not None and array.shape != x.shape:
            raise ValueError(
                f"softmax: {name} has shape {tuple(array.shape)}; "
                f"must have that of {x_name}, {tuple(x.shape)}"
            )
    allowed = {
        wide_name: (x.dtype, torch.float32),
        "grad_y": (wide.dtype,),
        "mask": (torch.bool, torch.uint8),
    }
    for name, dtypes in allowed.items():
        array = arrays.get(name)
        if array is not None and array.dtype not in dtypes:
            raise ValueError(
                f"softmax: {name} is {array.dtype}; must be {' or '.join(map(str, dtypes))}"
            )


def _call(most_of, plan, mask=None, scale=1.0, log="no", **arrays):
    backward = "grad_y" in arrays
    _check(*(("y", "grad_x") if backward else ("y", "x")), scale, log, mask=mask, **arrays)
    shape = arrays["y"].shape
    arguments = {**arrays, "mask": mask, "cols": shape[-1], "LOG": log == "yes"}
    arguments["tile"] = tile_of(shape[-1], most_of(arrays, log))
    if backward:
        arguments["scale"] = float(np.float32(scale))
    else:
        arguments |= {"scale": Scale.of(float(scale)), "NEGATIVE": scale < 0}
    kernel = _backward if backward else _forward
    yield Launch(kernel, (math.prod(shape[:-1]),), arguments, plan["warps"])


def _held(arrays, log):
    if "grad_y" in arrays:
        return _HELD_OF_GRADIENTS
    return _HELD_OF_LOG if log == "yes" else _HELD


def _streamed(arrays, log):
    return _STREAMED


def _choose(most_of, case):
    tile = tile_of(case.shapes["y"][-1], most_of(case.shapes, case.options.get("log")))
    return {"warps": tile.warps(_ELEMENTS)}


def _up_to(most_of, tiles, holder, case):
    if "f64" in case.dtypes.values():
        return "it computes in float, not in f64"
    if not case.shapes["y"]:
        return "y has no dimension"
    cols, most = case.shapes["y"][-1], tiles * most_of(case.shapes, case.options.get("log"))
    return f"{cols} columns; {holder} at most {most}" if cols > most else ""


def _variant(name, most_of, tiles, holder):
    """Of rows of so many tiles."""
    return Variant(
        name=name,
        kinds=("fwd", "bwd"),
        takes=frozenset({"x", "y", "mask", "grad_y", "grad_x", "scale", "log"}),
        make=partial(_call, most_of),
        knobs={"warps": (1, 2, 4, 8, 16)},
        choose=partial(_choose, most_of),
        declines=partial(_up_to, most_of, tiles, holder),
    )


VARIANTS = by_name(
    _variant("row_per_program", _held, 1, "registers hold"),
    _variant("streamed", _streamed, _MOST_TILES, "a program keeps the sums of"),
)
