# SPDX-License-Identifier: Apache-2.0
"""Images and signals of another size: torch.nn.functional.interpolate, with the same bits wherever
it is computed."""

import torch

from isobit import _resampling
from isobit.torch.functional import overridable, run_as
from isobit.torch.interpolating import INTERPOLATE
from isobit.torch.pooling_functions import adaptive_avg_pool1d, adaptive_avg_pool2d


def unsupported(dims, mode, antialias):
    """Why it is PyTorch's alone to compute such a call; None if it is not."""
    if antialias:
        return "antialias is True"
    if dims == 5:
        return "input has 5 dimensions"
    if mode not in _resampling.MODES:
        return f"mode is {mode!r}"
    return None


@overridable
def interpolate(
    input,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
    antialias=False,
):
    """torch.nn.functional.interpolate of 3 and 4 dimensions, without antialias. Where input has its
    channels last in memory, so has the result."""
    if not isinstance(input, torch.Tensor):
        raise TypeError(f"interpolate: input must be a Tensor; it is {type(input).__name__}")
    if input.is_nested:
        raise NotImplementedError("interpolate: input is nested; must be strided")
    reason = unsupported(input.ndim, mode, antialias)
    if reason is not None:
        raise NotImplementedError(
            f"interpolate: {reason}; torch.nn.functional.interpolate has that"
        )
    if input.ndim not in (3, 4):
        raise ValueError(f"interpolate: input has {input.ndim} dimensions; must have 3 or 4")
    given = (size, scale_factor, mode, align_corners, recompute_scale_factor)
    size, aligned, scales = _resampling.rule(input.shape[2:], *given, whole=torch.sym_int)
    one = input.ndim == 3
    if mode == "area":
        return adaptive_avg_pool1d(input, size) if one else adaptive_avg_pool2d(input, size)
    scale_h, scale_w = (0.0, *scales) if one else scales
    y = run_as(
        "interpolate",
        INTERPOLATE,
        {"x": input.unsqueeze(2) if one else input},
        size=(1, *size) if one else tuple(size),
        mode=_resampling.CODES[mode],
        align_corners=aligned,
        scale_h=float(scale_h),
        scale_w=float(scale_w),
    )
    return y.squeeze(2) if one else y
