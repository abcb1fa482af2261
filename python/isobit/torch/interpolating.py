# SPDX-License-Identifier: Apache-2.0
"""The records of interpolation. It is linear, as is its gradient, whose gradient it is again."""

from isobit.torch.convolving import has_channels_last, images_like
from isobit.torch.records import Axis, Operator


def _rule(call):
    """What follows the tensor and the size of every call."""
    return call.mode, call.align_corners, call.scale_h, call.scale_w


def _result(tensor, size):
    return images_like(tensor, has_channels_last(tensor), (*tensor.shape[:2], *size))


def _axes(name):
    """Images and channels know nothing of each other."""

    def axes(_call):
        for dim in (0, 1):
            yield Axis({name: dim}, (dim,))

    return axes


def _gradients(call, _wanted, grad):
    grad, size = grad.to(call.x.dtype), call.x.shape[2:]
    return {"x": INTERPOLATE_BACKWARD(grad, size, *_rule(call))}


INTERPOLATE = Operator(
    "interpolate",
    lambda call: _result(call.x, call.size),
    axes=_axes("x"),
    knows=("x",),
    gradients=_gradients,
    tangents=lambda call, along: INTERPOLATE(along.x, call.size, *_rule(call)),
)


def _gradients_of_backward(call, _wanted, grad):
    grad, size = grad.to(call.grad_y.dtype), call.grad_y.shape[2:]
    return {"grad_y": INTERPOLATE(grad, size, *_rule(call))}


INTERPOLATE_BACKWARD = Operator(
    "interpolate_backward",
    lambda call: _result(call.grad_y, call.size),
    outputs=("grad_x",),
    axes=_axes("grad_y"),
    knows=("grad_y",),
    gradients=_gradients_of_backward,
    tangents=lambda call, along: INTERPOLATE_BACKWARD(along.grad_y, call.size, *_rule(call)),
)
RECORDS = (INTERPOLATE, INTERPOLATE_BACKWARD)
