# SPDX-License-Identifier: Apache-2.0
"""What the arguments of interpolate mean, in isobit.numpy and in isobit.torch."""

from collections.abc import Iterable
from math import inf

CODES = {"nearest": 0, "nearest-exact": 1, "linear": 2, "bilinear": 2, "bicubic": 3}
MODES = (*CODES, "area")
_DIMS = {"linear": 1, "bilinear": 2, "bicubic": 2}


def rule(sides, size, scale_factor, mode, align_corners, recompute_scale_factor, whole=int):
    """The result's extents, whether corners are aligned, and results an element of each side, 0
    where the extents say it. whole: the next integer towards 0."""
    dims = len(sides)
    if mode not in MODES:
        raise NotImplementedError(f"interpolate: mode is {mode!r}; allowed: {', '.join(MODES)}")
    if _DIMS.get(mode, dims) != dims:
        raise NotImplementedError(
            f"interpolate: input has {dims + 2} dimensions; mode {mode} needs {_DIMS[mode] + 2}"
        )
    if mode not in _DIMS and align_corners is not None:
        raise ValueError(
            f"interpolate: align_corners is {align_corners}, but mode {mode} has no corners to "
            "align; must be None"
        )
    if size is not None and scale_factor is not None:
        raise ValueError("interpolate: size and scale_factor are given; must be one of them")
    if size is not None and recompute_scale_factor:
        raise ValueError("interpolate: recompute_scale_factor needs a scale_factor, not a size")
    if size is not None:
        size, scales = _each("size", size, dims), (0.0,) * dims
        for each in size:
            whole_number = isinstance(each, int) or hasattr(each, "__index__")
            if isinstance(each, bool) or not whole_number:
                raise TypeError(f"interpolate: size is {each!r}; must be an integer")
    elif scale_factor is not None:
        scales = _each("scale_factor", scale_factor, dims)
        for each in scales:
            if each is None or isinstance(each, (str, complex)):
                raise TypeError(f"interpolate: scale_factor is {each!r}; must be a number")
            if not 0 < each < inf:
                raise ValueError(
                    f"interpolate: scale_factor is {each}; must be above 0, and finite"
                )
        size = [whole(side * scale) for side, scale in zip(sides, scales, strict=True)]
        if recompute_scale_factor or align_corners or mode == "area":
            scales = (0.0,) * dims
    else:
        raise ValueError("interpolate: size and scale_factor are None; must be one of them")
    if any(extent < 1 for extent in (*sides, *size)):
        raise ValueError(
            f"interpolate: from {'x'.join(map(str, sides))} to {'x'.join(map(str, size))}; there "
            "must be elements along each side"
        )
    return size, bool(align_corners), scales


def _each(name, value, dims):
    """One number for all sides, or one for each."""
    if isinstance(value, Iterable) and getattr(value, "ndim", None) == 0:
        value = value.item()  # an array that is no sequence
    if isinstance(value, Iterable) and not isinstance(value, str):
        values = tuple(value)
        if len(values) != dims:
            raise ValueError(
                f"interpolate: {name} has {len(values)} numbers; must have {dims}, one for each "
                "dimension behind the channels"
            )
        return values
    return (value,) * dims
