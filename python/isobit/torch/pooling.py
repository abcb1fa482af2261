# SPDX-License-Identifier: Apache-2.0
"""The records of pooling. The mean of windows is linear, and so is the largest element once it is
known where it stands: derivatives of every order are these operators, and what is gathered there.
"""

import torch

from isobit.torch.convolving import has_channels_last, images_like
from isobit.torch.records import Axis, Operator

_INDEX = torch.int64


def _windows(call):
    """What follows the tensors and sizes of every call."""
    return call.kernel, call.bins, call.stride, call.padding, call.dilation, call.ceil_mode


def _results(extent, kernel, bins, stride, padding, dilation, ceil_mode):
    if kernel == 0:
        return bins
    room = extent + 2 * padding - dilation * (kernel - 1) - 1 + (stride - 1 if ceil_mode else 0)
    count = room // stride + 1
    return count - 1 if ceil_mode and (count - 1) * stride >= extent + padding else count


def _shape(call):
    """That of the results."""
    sides = zip(call.x.shape[2:], *_windows(call)[:-1], strict=True)
    extents = [_results(*side, call.ceil_mode) for side in sides]
    if any(extent < 1 for extent in extents):
        raise ValueError(f"pooling: the result would have the extents {extents}")
    return (*call.x.shape[:2], *extents)


def _axes(*tensors, results=1):
    """Images and channels know nothing of each other."""

    def axes(_call):
        for dim in (0, 1):
            yield Axis(dict.fromkeys(tensors, dim), (dim,) * results)

    return axes


def gathered(values, index):
    """Of each plane of values the elements that an index names; 0 for those of no element."""
    if index.numel() == 0:
        return values.new_zeros(index.shape)
    found = values.flatten(2).gather(2, index.flatten(2).clamp(min=0)).reshape(index.shape)
    return found.masked_fill(index < 0, 0)


def _max_results(call):
    shape, last = _shape(call), has_channels_last(call.x)
    index = call.x.new_empty((0,), dtype=_INDEX)
    if call.with_index:
        index = images_like(call.x, last, shape, _INDEX)
    return images_like(call.x, last, shape), index


def _known_index(call):
    if not call.with_index:
        raise NotImplementedError("max_pool has no derivative without with_index")
    return call.index


def _max_gradients(call, _wanted, grad, _grad_index):
    size = call.x.shape[2:]
    grad = grad.to(call.x.dtype)
    return {"x": MAX_POOL_BACKWARD(grad, _known_index(call), size, *_windows(call))}


MAX_POOL = Operator(
    "max_pool",
    _max_results,
    outputs=("y", "index"),
    axes=_axes("x", results=2),
    keeps=("index",),
    knows=("x",),
    gradients=_max_gradients,
    tangents=lambda call, along: (gathered(along.x, _known_index(call)), None),
)


def _input_like(grad, other, size):
    last = has_channels_last(grad) or has_channels_last(other)
    return images_like(grad, last, (*grad.shape[:2], *size))


MAX_POOL_BACKWARD = Operator(
    "max_pool_backward",
    lambda call: _input_like(call.grad_y, call.index, call.size),
    outputs=("grad_x",),
    axes=_axes("grad_y", "index"),
    keeps=("index",),
    gradients=lambda call, _wanted, grad: {"grad_y": gathered(grad, call.index)},
    tangents=lambda call, along: MAX_POOL_BACKWARD(
        along.grad_y, call.index, call.size, *_windows(call)
    ),
)


def _divided(call):
    return (*_windows(call), call.count_include_pad, call.divisor)


def _average_gradients(call, _wanted, grad):
    grad, size = grad.to(call.x.dtype), call.x.shape[2:]
    return {"x": AVERAGE_POOL_BACKWARD(grad, size, *_divided(call))}


AVERAGE_POOL = Operator(
    "average_pool",
    lambda call: images_like(call.x, has_channels_last(call.x), _shape(call)),
    axes=_axes("x"),
    knows=("x",),
    gradients=_average_gradients,
    tangents=lambda call, along: AVERAGE_POOL(along.x, *_divided(call)),
)

AVERAGE_POOL_BACKWARD = Operator(
    "average_pool_backward",
    lambda call: _input_like(call.grad_y, call.grad_y, call.size),
    outputs=("grad_x",),
    axes=_axes("grad_y"),
    gradients=lambda call, _wanted, grad: {"grad_y": AVERAGE_POOL(grad, *_divided(call))},
    tangents=lambda call, along: AVERAGE_POOL_BACKWARD(along.grad_y, call.size, *_divided(call)),
)
RECORDS = (MAX_POOL, MAX_POOL_BACKWARD, AVERAGE_POOL, AVERAGE_POOL_BACKWARD)
