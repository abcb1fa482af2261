# SPDX-License-Identifier: Apache-2.0
"""Arrays of images of any strides in Triton, of which a lane takes an element."""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Images(NamedTuple):
    """Elements from one image, channel, row and column to the next."""

    data: Any
    n: int
    c: int
    h: int
    w: int


def images_of(array):
    """None where there is no array."""
    return Images(None, 0, 0, 0, 0) if array is None else Images(array, *array.stride())


@triton.jit
def places(index, channels, rows, cols):
    """(image, channel, row, col) of what has an index."""
    line = tl.cast(index, tl.int64) // cols
    plane = line // rows
    image = plane // channels
    return image, plane - image * channels, line - plane * rows, index - line * cols


@triton.jit
def at_place(images, image, channel, row, col):
    image = tl.cast(image, tl.int64)
    return image * images.n + channel * images.c + row * images.h + col * images.w
