# SPDX-License-Identifier: Apache-2.0
"""The variants in Triton that all norms have, over kernels that are given a norm's statistics.

Arrays are contiguous, and their last dimension is normalised. Outputs are filled; those that are
not given are not computed. Backward takes statistics as inputs, all of a norm's or none; its grad_x
is memory of its own, since two_pass reads x once more. Any row goes the way of docs/numerics.md,
the long one too, but in float: f64 is declined. No GPU has run these kernels yet: Triton's
interpreter has, and ptxas takes them.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from isobit.ops.triton_norm_backward import (
    KEPT,
    KEPT_WITHOUT_MEAN,
    columns_kernel,
    one_pass_kernel,
    rows_kernel,
)
from isobit.ops.triton_norm_forward import forward_kernel
from isobit.ops.triton_norm_rows import tile_of
from isobit.ops.triton_sums import RUN, folds
from isobit.ops.triton_variants import Launch, Variant, by_name, parts

# Columns of a tile; with twice as many, ptxas spills registers [sm_90].
_MOST_HELD = {"row_per_program": 16384, "one_pass": 4096, "two_pass": 8192}
_STREAMED = 4096
_MOST_TILES = 1024  # of a row, whose sums a program keeps
_COLUMNS = 256  # that a program of two_pass's second kernel takes


def _two_pass_tile(cols):
    held = _MOST_HELD["two_pass"]
    return tile_of(cols, held if cols <= held else _STREAMED)


_TILE_OF = {
    "row_per_program": partial(tile_of, most=_MOST_HELD["row_per_program"]),
    "streamed": partial(tile_of, most=_STREAMED),
    "one_pass": partial(tile_of, most=_MOST_HELD["one_pass"]),
    "two_pass": _two_pass_tile,
}


def _rows(x):
    return math.prod(x.shape[:-1])


def _plan(variant, elements, **others):
    """So many warps that a thread has this many elements of a tile."""

    def choose(case):
        tile = _TILE_OF[variant](case.shapes["x"][-1])
        return {"warps": tile.warps(elements), **others}

    return choose


@dataclass(frozen=True)
class Norm:
    """What one norm is to the kernels of all."""

    op: str
    statistics_of: Any  # held, source, cols, eps, tile -> Statistics
    centred: bool  # whether it subtracts a mean, and adds a bias

    def has(self, name):
        """Whether its calls have an array of this name."""
        return self.centred or name not in ("bias", "mean", "grad_bias")

    @property
    def kept(self):
        return (KEPT if self.centred else KEPT_WITHOUT_MEAN).value


def _forward(norm, variant):
    def launches(plan, x, weight=None, bias=None, y=None, mean=None, rstd=None, eps=1e-5):
        tile = _TILE_OF[variant](x.shape[-1])
        arguments = {"x": x, "weight": weight, "bias": bias, "y": y, "mean": mean, "rstd": rstd}
        arguments |= {"cols": x.shape[-1], "eps": float(eps)}
        arguments |= {"statistics_of": norm.statistics_of, "tile": tile}
        yield Launch(forward_kernel, (_rows(x),), arguments, plan["warps"])

    return launches


@dataclass
class _Backward:
    """The arrays of the backward pass, and what its kernels make of them."""

    norm: Norm
    x: torch.Tensor
    grad_y: torch.Tensor
    weight: torch.Tensor = None
    mean: torch.Tensor = None
    rstd: torch.Tensor = None
    grad_x: torch.Tensor = None
    grad_weight: torch.Tensor = None
    grad_bias: torch.Tensor = None
    eps: float = 1e-5

    def __post_init__(self):
        given = [name for name in ("mean", "rstd") if getattr(self, name) is not None]
        if self.norm.centred and len(given) == 1:
            other = "rstd" if given == ["mean"] else "mean"
            raise ValueError(f"{self.norm.op} backward: {given[0]} is given without {other}")

    def rows(self, tile):
        """Arguments of a kernel that takes whole rows."""
        names = ("x", "grad_y", "weight", "mean", "rstd", "grad_x")
        arguments = {name: getattr(self, name) for name in names}
        arguments |= {"cols": self.x.shape[-1], "eps": float(self.eps)}
        return arguments | {"statistics_of": self.norm.statistics_of, "tile": tile}

    def sums(self, count):
        """Memory for so many sums of each column, where their total is wanted."""
        wanted = {"weight_sums": self.grad_weight, "bias_sums": self.grad_bias}
        return {
            name: None if total is None else self.memory(count, self.x.shape[-1])
            for name, total in wanted.items()
        }

    def folds(self, sums, count):
        for name, total in (("weight_sums", self.grad_weight), ("bias_sums", self.grad_bias)):
            if total is not None:
                yield from folds(sums[name], count, total)

    def memory(self, *shape):
        return self.x.new_empty(shape, dtype=torch.float32)


def _one_pass(norm, plan, **arrays):
    call = _Backward(norm, **arrays)
    rows = _rows(call.x)
    runs = parts(rows, RUN.value)
    sums = call.sums(runs)
    arguments = {**call.rows(_TILE_OF["one_pass"](call.x.shape[-1])), **sums, "rows": rows}
    yield Launch(one_pass_kernel, (runs,), arguments, plan["warps"])
    yield from call.folds(sums, runs)


def _two_pass(norm, plan, **arrays):
    call = _Backward(norm, **arrays)
    rows, cols = _rows(call.x), call.x.shape[-1]
    kept = None if call.grad_weight is None else call.memory(rows, norm.kept)
    if call.grad_x is not None or kept is not None:
        arguments = call.rows(_TILE_OF["two_pass"](cols))
        arguments |= {"statistics": kept, "kept": norm.kept}
        yield Launch(rows_kernel, (rows,), arguments, plan["warps"])
    if call.grad_weight is not None or call.grad_bias is not None:
        runs = plan["runs"]
        groups = parts(rows, runs * RUN.value)
        sums = call.sums(groups)
        arguments = {"x": call.x, "grad_y": call.grad_y, "statistics": kept, **sums}
        arguments |= {"rows": rows, "cols": cols, "kept": norm.kept}
        arguments |= {"RUNS": runs, "COLUMNS": _COLUMNS}
        yield Launch(columns_kernel, (groups, parts(cols, _COLUMNS)), arguments)
        yield from call.folds(sums, groups)


_PER_COLUMN = ("weight", "bias", "grad_weight", "grad_bias")
_LIKE_X = ("y", "grad_y", "grad_x")


def _checked(norm, launches):
    """Of arrays that do not fit, kernels would reach what lies beyond."""

    def make(plan, x, eps=1e-5, **arrays):
        shape, rows = tuple(x.shape), _rows(x)
        for name, array in arrays.items():
            count = x.numel() if name in _LIKE_X else shape[-1] if name in _PER_COLUMN else rows
            if array is not None and array.numel() != count:
                raise ValueError(
                    f"{norm.op}: {name} has {array.numel()} elements; must have {count}, since x "
                    f"has shape {shape}"
                )
        return launches(plan, x=x, eps=eps, **arrays)

    return make


def _up_to(most, holder):
    def declines(case):
        dtype, cols = case.dtypes["x"], case.shapes["x"][-1]
        if dtype not in ("f32", "f16", "bf16"):
            return f"it computes in float, not in {dtype}"
        weight_dtype = case.dtypes.get("weight", dtype)
        if weight_dtype not in (dtype, "f32"):
            return f"weights of {weight_dtype} beside {dtype}"
        if cols > most:
            return f"{cols} columns; {holder} at most {most}"
        return ""

    return declines


_WARPS = {"warps": (1, 2, 4, 8, 16)}
_FORWARD = ("x", "weight", "bias", "y", "mean", "rstd", "eps")
_BACKWARD = ("x", "grad_y", "weight", "mean", "rstd", "grad_x", "grad_weight", "grad_bias", "eps")
_streams = _up_to(_MOST_TILES * _STREAMED, "a program keeps the sums of")


def variants(norm):
    forward, backward = (frozenset(filter(norm.has, names)) for names in (_FORWARD, _BACKWARD))
    return by_name(
        Variant(
            name="row_per_program",
            kinds=("fwd",),
            takes=forward,
            make=_checked(norm, _forward(norm, "row_per_program")),
            knobs=_WARPS,
            choose=_plan("row_per_program", 32),
            declines=_up_to(_MOST_HELD["row_per_program"], "registers hold"),
        ),
        Variant(
            name="streamed",
            kinds=("fwd",),
            takes=forward,
            make=_checked(norm, _forward(norm, "streamed")),
            knobs=_WARPS,
            choose=_plan("streamed", 32),
            declines=_streams,
        ),
        Variant(
            name="one_pass",
            kinds=("bwd",),
            takes=backward,
            make=_checked(norm, partial(_one_pass, norm)),
            knobs=_WARPS,
            choose=_plan("one_pass", 16),
            declines=_up_to(_MOST_HELD["one_pass"], "registers hold"),
        ),
        Variant(
            name="two_pass",
            kinds=("bwd",),
            takes=backward,
            make=_checked(norm, partial(_two_pass, norm)),
            knobs=_WARPS | {"runs": (1, 2, 4, 8)},
            choose=_plan("two_pass", 16, runs=4),
            declines=_streams,
        ),
    )
