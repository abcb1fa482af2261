# SPDX-License-Identifier: Apache-2.0
"""Interpolation of isobit.numpy."""

from isobit import _arrays, _resampling, c_abi
from isobit._calls import FLOATS, Call, context
from isobit._pooling import adaptive_avg_pool2d

_NAMES = ("nearest", "nearest_exact", "linear", "cubic")  # by code


def interpolate(
    x,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
):
    """x, (batch, channels, length) or (batch, channels, height, width), in another size: of so many
    elements a side, or as many times more. mode: "nearest", "nearest-exact", "area", of three
    dimensions "linear", of four "bilinear" and "bicubic". Arrays of any strides."""
    call = Call("interpolate", "x", x, FLOATS)
    if call.x.ndim not in (3, 4):
        raise ValueError(f"interpolate: x has {call.x.ndim} dimensions; must have 3 or 4")
    given = (size, scale_factor, mode, align_corners, recompute_scale_factor)
    size, aligned, scales = _resampling.rule(call.x.shape[2:], *given)
    one = call.x.ndim == 3
    images = call.x[:, :, None] if one else call.x
    if mode == "area":
        y = adaptive_avg_pool2d(images, (1, *size) if one else size)
        return call.result(y[:, :, 0] if one else y)
    y = call.empty((*images.shape[:2], *((1, *size) if one else size)), call.dtype)
    scale_h, scale_w = (0.0, *scales) if one else scales
    c_abi.call(
        "interpolate",
        "fwd",
        context(),
        x=_arrays.strided(images),
        y=_arrays.strided(y),
        mode=_NAMES[_resampling.CODES[mode]],
        align_corners=aligned,
        scale_h=float(scale_h),
        scale_w=float(scale_w),
    )
    return call.result(y[:, :, 0] if one else y)
