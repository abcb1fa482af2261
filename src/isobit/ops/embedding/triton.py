# SPDX-License-Identifier: Apache-2.0
"""embedding in Triton, forward and backward, of rows of any strides, with the bits of all other
variants.

    VARIANTS["row_per_program"].run(weight=weight, index=index, y=y)
    VARIANTS["sorted"].run(grad_y=grad_y, index=index, grad_weight=grad_weight, padding_idx=0)

An index that is no token makes its row NaN, and has no part in a gradient. PyTorch sorts positions
by token; a program adds up some columns of a token. No GPU has run these kernels yet: Triton's
interpreter has.
"""

import torch
import triton
import triton.language as tl

from isobit.ops.triton_sums import RUN, push, total_of
from isobit.ops.triton_variants import Launch, Variant, by_name, parts, quotient, store, widened

# By the size of an element: what has as many bits, and the canonical NaN.
_BITS = {
    torch.float32: (torch.int32, 0x7FC00000),
    torch.float16: (torch.int16, 0x7E00),
    torch.bfloat16: (torch.int16, 0x7FC0),
    torch.float64: (torch.int64, 0x7FF8000000000000),
}


@triton.jit
def _gather(
    weight, index, y, tokens, cols, weight_steps, y_steps, NAN: tl.constexpr, COLS: tl.constexpr
):
    """A row, in bits, so that those of a NaN stay what they are."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * COLS + tl.arange(0, COLS).to(tl.int64)
    token = tl.load(index + row).to(tl.int64)
    there = (token >= 0) & (token < tokens)
    inside = col < cols
    at = weight + token * weight_steps[0] + col * weight_steps[1]
    value = tl.load(at, mask=inside & there, other=NAN)
    tl.store(y + row * y_steps[0] + col * y_steps[1], value, mask=inside)


@triton.jit
def _add_up(
    grad_y,
    places,
    begins,
    grad_weight,
    cols,
    grad_y_steps,
    grad_weight_steps,
    BY_FREQUENCY: tl.constexpr,
    LEVELS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Some columns of a token's row: runs one after the other, and their tree."""
    token = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * COLS + tl.arange(0, COLS).to(tl.int64)
    inside = col < cols
    begin = tl.load(begins + token)
    count = tl.load(begins + token + 1) - begin
    zero = widened(grad_y, col * 0, inside & False)
    nodes = tl.zeros([LEVELS, COLS], zero.dtype)
    runs = (count + RUN - 1) // RUN
    for run in range(0, runs):
        total = zero
        for i in range(RUN):
            at = run * RUN + i
            place = tl.load(places + begin + at, mask=at < count, other=0)
            to = place * grad_y_steps[0] + col * grad_y_steps[1]
            total = total + widened(grad_y, to, inside & (at < count))
        nodes = push(nodes, total, run)
    total = total_of(nodes, runs)
    if BY_FREQUENCY:
        divisor = tl.zeros_like(col) + tl.maximum(count, 1)
        total = quotient(total, divisor.to(total.dtype))
    to = token * grad_weight_steps[0] + col * grad_weight_steps[1]
    store(grad_weight, to, total, inside)


def _check(rows, index, table):
    if rows.shape[:-1] != index.shape or table.dim() != 2 or rows.shape[-1] != table.shape[1]:
        given = ", ".join(str(tuple(each.shape)) for each in (rows, index, table))
        raise ValueError(f"embedding: rows, index and table have the shapes {given}")


def _as_rows(array):
    return array.view(-1, array.shape[-1]) if array.dim() != 2 else array


def _forward(plan, weight, index, y):
    _check(y, index, weight)
    integer, nan = _BITS[weight.dtype]
    y = _as_rows(y)
    arguments = {"weight": weight.view(integer), "index": index.reshape(-1), "y": y.view(integer)}
    arguments |= {"tokens": weight.shape[0], "cols": weight.shape[1]}
    arguments |= {"weight_steps": weight.stride(), "y_steps": y.stride()}
    arguments |= {"NAN": nan, "COLS": plan["cols"]}
    yield Launch(_gather, (len(y), parts(y.shape[1], plan["cols"])), arguments, plan["warps"])


def _backward(plan, grad_y, index, grad_weight, padding_idx=-1, scale_grad_by_freq="no"):
    _check(grad_y, index, grad_weight)
    grad_y, keys = _as_rows(grad_y), index.reshape(-1).long()
    tokens, cols = grad_weight.shape
    keys = keys.masked_fill((keys < 0) | (keys >= tokens) | (keys == int(padding_idx)), tokens)
    keys, places = keys.sort(stable=True)
    begins = torch.searchsorted(keys, torch.arange(tokens + 1, device=keys.device))
    levels = max(1, parts(len(keys), RUN.value)).bit_length()
    arguments = {"grad_y": grad_y, "places": places, "begins": begins, "grad_weight": grad_weight}
    arguments |= {"cols": cols, "COLS": plan["cols"]}
    arguments |= {"grad_y_steps": grad_y.stride(), "grad_weight_steps": grad_weight.stride()}
    arguments["BY_FREQUENCY"] = scale_grad_by_freq == "yes"
    arguments["LEVELS"] = triton.next_power_of_2(levels)
    yield Launch(_add_up, (tokens, parts(cols, plan["cols"])), arguments, plan["warps"])


_KNOBS = {"cols": (32, 128, 512), "warps": (1, 2, 4, 8)}

VARIANTS = by_name(
    Variant(
        name="row_per_program",
        kinds=("fwd",),
        takes=frozenset({"weight", "index", "y"}),
        make=_forward,
        knobs=_KNOBS,
        choose=lambda case: {"cols": 512, "warps": 4},
        any_strides=True,
    ),
    Variant(
        name="sorted",
        kinds=("bwd",),
        takes=frozenset({"grad_y", "index", "grad_weight", "padding_idx", "scale_grad_by_freq"}),
        make=_backward,
        knobs=_KNOBS,
        choose=lambda case: {"cols": 128, "warps": 4},
        any_strides=True,
    ),
)
