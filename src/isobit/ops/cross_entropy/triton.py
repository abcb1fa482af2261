# SPDX-License-Identifier: Apache-2.0
"""cross_entropy in Triton, with the bits of all other variants, but not of doubles. No GPU has run
these kernels yet: Triton's interpreter has.

    VARIANTS["row_per_program"].run(x=x, target=target, loss=loss, largest=m, sum=s, total=total)
    VARIANTS["streamed"].run(grad_loss=g, x=x, target=target, largest=m, sum=s, grad_x=x)

A target that is no class makes its row NaN, and the sums over rows.
"""

import math
from functools import partial

import numpy as np
import torch
import triton

from isobit.ops.cross_entropy.triton_rows import (
    Shares,
    backward_kernel,
    forward_kernel,
    totals_kernel,
)
from isobit.ops.triton_norm_rows import tile_of
from isobit.ops.triton_sums import RUN
from isobit.ops.triton_variants import Launch, Variant, by_name, fitting, parts

_HELD, _STREAMED = 8192, 4096  # columns of a tile
_ELEMENTS = 32  # of a tile that a thread has, up to 16 warps
_MOST_TILES = 1024  # of a row, whose sums a program keeps

_ROWS = ("loss", "lse", "largest", "sum")
_TAKES = {"x", "target", "weight", "total", "count", "grad_loss", "grad_x", *_ROWS}
_OPTIONS = {"ignore_index", "label_smoothing", "z_loss"}


def shares_of(op, cols, label_smoothing, z_loss):
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"{op}: label_smoothing is {label_smoothing}; allowed: 0 to 1")
    if not abs(z_loss) <= torch.finfo(torch.float32).max:
        raise ValueError(f"{op}: z_loss is {z_loss}; must be within the range of float")
    each = label_smoothing / cols if label_smoothing and cols else None
    own, each, squared = (
        None if number is None else float(np.float32(number))
        for number in (1 - label_smoothing, each, z_loss or None)
    )
    return Shares(own, each, squared)


def _check(arrays):
    """Beside shapes."""
    dtypes = dict.fromkeys(arrays, (torch.float32,))
    dtypes |= {"x": (torch.float32, torch.float16, torch.bfloat16), "target": (torch.int64,)}
    dtypes |= {"grad_x": (arrays["x"].dtype,)}
    for name, array in arrays.items():
        if array.dtype not in dtypes[name]:
            raise ValueError(
                f"cross_entropy: {name} is {array.dtype}; "
                f"must be {' or '.join(map(str, dtypes[name]))}"
            )


def _make(most, plan, ignore_index=-100, label_smoothing=0.0, z_loss=0.0, **arrays):
    _check(arrays)
    x = arrays["x"]
    rows, cols = math.prod(x.shape[:-1]), x.shape[-1]
    shares = shares_of("cross_entropy", cols, float(label_smoothing), float(z_loss))
    given = {"x": x, "target": arrays["target"], "weight": arrays.get("weight")}
    known = {"cols": cols, "ignore_index": int(ignore_index)}
    more = {"shares": shares, "tile": tile_of(cols, most)}
    if "grad_loss" in arrays:
        names = "grad_loss", "largest", "sum", "grad_x"
        arguments = given | known | more | {name: arrays[name] for name in names}
        yield Launch(backward_kernel, (rows,), arguments, plan["warps"])
        return
    arguments = given | known | more | {name: arrays.get(name) for name in _ROWS}
    yield Launch(forward_kernel, (rows,), arguments, plan["warps"])
    sums = {name: arrays.get(name) for name in ("total", "count")}
    if any(each is not None for each in sums.values()):
        del given["x"]
        arguments = given | known | sums | {"loss": arrays["loss"], "rows": rows}
        levels = max(1, parts(rows, RUN.value)).bit_length()
        arguments["LEVELS"] = triton.next_power_of_2(levels)
        yield Launch(totals_kernel, (1,), arguments, 1)


def _choose(most, case):
    return {"warps": tile_of(case.shapes["x"][-1], most).warps(_ELEMENTS)}


def _up_to(most, holder, case):
    if "f64" in case.dtypes.values():
        return "it computes in float, not in f64"
    if not case.shapes["x"]:
        return "x has no dimension"
    cols = case.shapes["x"][-1]
    return f"{cols} columns; {holder} at most {most}" if cols > most else ""


def _variant(name, most, tiles, holder):
    """Of rows of so many tiles."""
    return Variant(
        name=name,
        kinds=("fwd", "bwd"),
        takes=frozenset(_TAKES | _OPTIONS),
        make=partial(_make, most),
        knobs={"warps": (1, 2, 4, 8, 16)},
        choose=partial(_choose, most),
        declines=partial(_up_to, most * tiles, holder),
        fits=fitting("cross_entropy"),
    )


VARIANTS = by_name(
    _variant("row_per_program", _HELD, 1, "registers hold"),
    _variant("streamed", _STREAMED, _MOST_TILES, "a program keeps the sums of"),
)
