# SPDX-License-Identifier: Apache-2.0
"""The variants of group_norm and batch_norm in Triton, with the bits of all others.

Arrays may have any strides; what has a number for each channel is contiguous. f64 is
declined. No GPU has run these kernels yet: Triton's interpreter has.
"""

from functools import partial

import numpy as np
import torch

from isobit.ops.channel_norm.triton_rows import (
    Images,
    OfRows,
    Rows,
    Running,
    backward_kernel,
    channels_kernel,
    forward_kernel,
)
from isobit.ops.triton_norm_rows import tile_of
from isobit.ops.triton_variants import Launch, Variant, by_name

_HELD, _STREAMED = 4096, 4096  # columns of a tile: of a row in registers, and of one that is not
_MOST_TILES = 1024  # of a row, whose sums a program keeps
_ELEMENTS = 16  # of a thread

_LIKE_X = ("x", "y", "grad_y", "grad_x")
_OF_CHANNELS = ("weight", "bias", "grad_weight", "grad_bias")
_OF_ROWS = ("mean", "rstd", "moments")
_MOMENTS = 3
_RUNNING = ("running_mean", "running_var", "next_mean", "next_var")


def _images(array):
    return Images(None, 0, 0, 0) if array is None else Images(array, *array.stride())


def _of_rows(array, groups):
    if array is None:
        return OfRows(None, 0, 0, 0)
    strides = array.stride() if groups else (0, *array.stride())
    return OfRows(array, *strides, *(0,) * (3 - len(strides)))


def _check(op, groups, arrays):
    """Of arrays that do not fit, kernels would reach what lies beyond."""
    x = arrays["x"]
    batch, channels, _ = x.shape
    if groups and (groups < 1 or channels % groups):
        raise ValueError(f"{op}: x has {channels} channels, which {groups} groups cannot share")
    for name, array in arrays.items():
        if array is None:
            continue
        shape = (channels,)
        if name in _LIKE_X:
            shape = tuple(x.shape)
        elif name in _OF_ROWS and groups:
            shape = (batch, groups)
        if name == "moments":
            shape += (_MOMENTS,)
        if tuple(array.shape) != shape:
            raise ValueError(f"{op}: {name} has shape {tuple(array.shape)}; must have {shape}")
        if len(shape) == 1 and not array.is_contiguous():
            raise ValueError(f"{op}: {name} must be contiguous")


def _running(arrays, momentum, count):
    real = np.float32
    with np.errstate(divide="ignore", invalid="ignore"):
        correction = float(real(count) / real(count - 1))
    numbers = (float(real(momentum)), float(real(1 - momentum)), correction)
    return Running(*(arrays.get(name) for name in _RUNNING), *numbers)


def _call(op, most, plan, groups=0, training="yes", momentum=0.1, eps=1e-5, **arrays):
    groups = int(groups) or (1 if op == "group_norm" else 0)
    _check(op, groups, arrays)
    x = arrays["x"]
    batch, channels, extent = x.shape
    of_group = channels // groups if groups else 1
    cols = of_group * extent if groups else batch * extent
    count = batch * groups if groups else channels
    common = {"weight": arrays.get("weight"), "cols": cols, "eps": float(eps)}
    common |= {"running": _running(arrays, momentum, cols), "TRAINING": training == "yes"}
    common |= {"rows": Rows(groups, of_group, extent), "OVER_IMAGES": groups == 0}
    common["tile"] = tile_of(cols, most)
    if "grad_y" not in arrays:
        images = {name: _images(arrays[name]) for name in ("x", "y")}
        more = {name: _of_rows(arrays.get(name), groups) for name in _OF_ROWS}
        more["bias"] = arrays.get("bias")
        yield Launch(forward_kernel, (count,), {**common, **images, **more}, plan["warps"])
        return
    images = {name: _images(arrays.get(name)) for name in ("x", "grad_y", "grad_x")}
    sums = {name: arrays.get(name) for name in ("grad_weight", "grad_bias")}
    later = groups and any(each is not None for each in sums.values())
    xhat = x.new_empty(x.shape, dtype=torch.float32) if later else None
    own = dict.fromkeys(sums) if later else sums
    more = {**images, **own, "xhat": xhat, "moments": _of_rows(arrays.get("moments"), groups)}
    yield Launch(backward_kernel, (count,), {**common, **more}, plan["warps"])
    if later:
        arguments = {"xhat": _images(xhat), "grad_y": images["grad_y"], **sums}
        arguments |= {"rows": Rows(0, 1, extent), "cols": batch * extent}
        arguments["tile"] = tile_of(batch * extent, most)
        yield Launch(channels_kernel, (channels,), arguments, plan["warps"])


def _longest(op, case):
    batch, channels, extent = case.shapes["x"]
    of_channel = batch * extent
    if op == "batch_norm":
        return of_channel
    of_group = channels // max(int(case.options.get("groups", 1)), 1) * extent
    return max(of_group, of_channel) if "grad_y" in case.shapes else of_group


def _choose(op, most, case):
    return {"warps": tile_of(_longest(op, case), most).warps(_ELEMENTS)}


def _up_to(op, most, holder, case):
    if "f64" in case.dtypes.values():
        return "it computes in float, not in f64"
    cols = _longest(op, case)
    return f"rows of {cols} elements; {holder} at most {most}" if cols > most else ""


def variants(op):
    options = {"groups"} if op == "group_norm" else {"training", "momentum"}
    takes = frozenset({*_LIKE_X, *_OF_CHANNELS, *_OF_ROWS, *_RUNNING, "eps"} | options)

    def variant(name, tile, most, holder):
        return Variant(
            name=name,
            kinds=("fwd", "bwd"),
            takes=takes,
            make=partial(_call, op, tile),
            knobs={"warps": (1, 2, 4, 8, 16)},
            choose=partial(_choose, op, tile),
            declines=partial(_up_to, op, most, holder),
            any_strides=True,
        )

    return by_name(
        variant("row_per_program", _HELD, _HELD, "registers hold"),
        variant("streamed", _STREAMED, _MOST_TILES * _STREAMED, "a program keeps the sums of"),
    )
