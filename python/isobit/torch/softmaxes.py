# SPDX-License-Identifier: Apache-2.0
"""The records of softmax and its gradient. Along its input it is differentiated by its gradient,
which is as symmetric as a covariance is; what else there is of derivatives are PyTorch's
operations."""

from isobit.torch.activations import ACTIVATION, CODES
from isobit.torch.records import Axis, Operator, float32_result, total_of


def _axes(call):
    every = ("x", "y", "grad_y", "mask")
    tensors = [name for name in every if getattr(call, name, None) is not None]
    for dim in range(getattr(call, tensors[0]).ndim - 1):
        yield Axis(dict.fromkeys(tensors, dim), (dim,))


def _sum(terms):
    return terms.sum(-1, keepdim=True) if terms.dim() else terms


def _there(call, terms):
    """What only elements have that are there."""
    return terms if call.mask is None else terms.masked_fill(call.mask == 0, 0)


def _weights(call):
    """What softmax itself gives, where y is its logarithm."""
    return ACTIVATION(call.y, CODES["exp"]) if call.log else call.y


def _backward(call, grad, dtype=None):
    return SOFTMAX_BACKWARD(grad, call.y, call.mask, call.scale, call.log, dtype)


def _along(call, tangent):
    """Of y, where x moves along a tangent."""
    if not call.log:
        return _backward(call, tangent)
    tangent = _there(call, tangent)
    return _there(call, call.scale * (tangent - _sum(tangent * _weights(call))))


def _gradients(call, _wanted, grad):
    dtype = None if grad.dtype == call.x.dtype else call.x.dtype
    return {"x": _backward(call, grad, dtype)}


SOFTMAX = Operator(
    "softmax",
    lambda call: call.x.new_empty(call.x.shape, dtype=call.dtype or call.x.dtype),
    rows=("x", "mask"),
    axes=_axes,
    keeps=("mask", "y"),
    knows=("x",),
    gradients=_gradients,
    tangents=lambda call, along: _along(call, along.x.to(call.y.dtype)),
    autocast=float32_result("dtype"),
)


def _of_y(call, grad):
    """The gradient of y, from that of the gradient of x: each of its elements is a product of y."""
    grad, of_x = _there(call, grad), _there(call, call.grad_y)
    if call.log:
        return -call.scale * grad * _weights(call) * _sum(of_x)
    return call.scale * (grad * (of_x - _sum(of_x * call.y)) - of_x * _sum(grad * call.y))


def _backward_gradients(call, wanted, grad):
    grad = grad.to(call.y.dtype)
    found = {}
    if wanted.grad_y:
        found["grad_y"] = _along(call, grad)
    if wanted.y:
        found["y"] = _there(call, _of_y(call, grad)).to(call.y.dtype)
    return found


def _backward_tangents(call, along):
    terms = []
    if along.grad_y is not None:
        terms.append(_backward(call, along.grad_y))
    if along.y is not None:
        move, grad = _there(call, along.y), _there(call, call.grad_y)
        weights = _weights(call)
        if call.log:
            terms.append(-call.scale * weights * move * _sum(grad))
        else:
            terms.append(
                call.scale * (move * (grad - _sum(grad * weights)) - weights * _sum(grad * move))
            )
    return _there(call, total_of(*terms)).to(call.dtype or call.y.dtype)


SOFTMAX_BACKWARD = Operator(
    "softmax_backward",
    lambda call: call.y.new_empty(call.y.shape, dtype=call.dtype or call.y.dtype),
    outputs=("grad_x",),
    like="y",
    rows=("grad_y", "y", "mask"),
    axes=_axes,
    keeps=("grad_y", "y", "mask"),
    gradients=_backward_gradients,
    tangents=_backward_tangents,
)

RECORDS = (SOFTMAX, SOFTMAX_BACKWARD)
