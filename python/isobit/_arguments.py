# SPDX-License-Identifier: Apache-2.0
"""Reads what a call is told beside its arrays, or refuses it in one line that names function and
argument."""

import math
import operator
import secrets
from contextlib import suppress
from textwrap import shorten


def shown(given):
    """A value as messages show it: on one line, and not at length."""
    return shorten(repr(given), 80, placeholder="...")


def integer(function, name, given, lowest, highest, allowed):
    """allowed: the range in words."""
    try:
        value = operator.index(given)
    except TypeError:
        raise TypeError(
            f"{function}: {name} is {shown(given)}; must be an integer from {allowed}"
        ) from None
    if not lowest <= value <= highest:
        raise ValueError(f"{function}: {name} is {value}; allowed: {allowed}")
    return value


def number(function, name, given, is_allowed, needed):
    """A float. Texts are refused, though float() would read some."""
    value = None
    if not isinstance(given, (str, bytes, bytearray)):
        with suppress(TypeError, ValueError):
            value = _float(given)
    if value is None:
        raise TypeError(f"{function}: {name} is {shown(given)}; must be {needed}")
    if not is_allowed(value):
        raise ValueError(f"{function}: {name} is {value:g}; must be {needed}")
    return value


def real(function, name, given):
    """Any number; its range is the library's to check."""
    return number(function, name, given, lambda value: True, "a number")


def reals(function, **given):
    return {name: real(function, name, each) for name, each in given.items()}


def whole(function, name, given):
    return integer(function, name, given, -(2**63), 2**63 - 1, "-2^63 to 2^63 - 1")


def _float(given):
    try:
        return float(given)
    except OverflowError:  # an integer beyond all floats
        return math.inf


def eps(function, given):
    return number(function, "eps", given, math.isfinite, "a finite number")


def probability(function, given):
    return number(function, "p", given, lambda p: 0 <= p < 1, "at least 0 and less than 1")


def seed(function, given):
    """64 bits, drawn where None is given. PyTorch takes the same integers, and negative ones for
    the same bits."""
    if given is None:
        return secrets.randbits(64)
    allowed = "-2^63 to 2^64 - 1"
    return integer(function, "seed", given, -(2**63), 2**64 - 1, allowed) % 2**64


def row(function, normalized_shape, name, shape):
    """The extents that are normalised, which are the last of an array's shape."""
    several = hasattr(normalized_shape, "__iter__")
    try:
        extents = tuple(map(operator.index, normalized_shape if several else (normalized_shape,)))
    except TypeError:
        raise TypeError(
            f"{function}: normalized_shape is {shown(normalized_shape)}; must consist of integers"
        ) from None
    if not extents or extents != shape[-len(extents) :]:
        raise ValueError(f"{function}: normalized_shape is {extents}; {name} has shape {shape}")
    return extents


def dim(function, name, given, rank):
    """A dimension of an array, counted from the end where it is negative; of a number 0 or -1."""
    most = max(rank, 1)
    return integer(function, name, given, -most, most - 1, f"{-most} to {most - 1}") % most


def sides(function, padding, taps, stride, dilation, causal=False):
    """What stands before the first element of each dimension and behind the last, by the name of a
    padding; `causal` is whether that is one."""
    reach = [apart * (each - 1) for apart, each in zip(dilation, taps, strict=True)]
    if padding == "valid":
        return [(0, 0) for _ in reach]
    if padding == "causal" and causal:
        return [(each, 0) for each in reach]
    if padding == "same":
        if any(each != 1 for each in stride):
            raise ValueError(
                f"{function}: padding is 'same', which needs a stride of 1; it is {tuple(stride)}"
            )
        return [(each // 2, each - each // 2) for each in reach]
    names = "'same', 'valid'" + ", 'causal'" * causal
    raise ValueError(f"{function}: padding is {padding!r}; allowed: numbers, {names}")
