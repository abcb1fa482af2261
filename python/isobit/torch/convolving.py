# SPDX-License-Identifier: Apache-2.0
"""The records of the convolutions. A convolution is linear in its input and in its weight, so its
derivatives of every order are three operators: itself, and its gradients of either."""

from math import prod

import torch

from isobit.torch.records import SUM, Axis, Operator, narrow_inputs, total_of


def _windows(call):
    """What follows the tensors and sizes of every call."""
    return call.stride, call.padding, call.extra_padding, call.dilation, call.groups


def _forward(call, x, weight, bias=None):
    return CONVOLUTION(x, weight, bias, *_windows(call))


def _to_input(call, grad, weight, size):
    return CONVOLUTION_INPUT(grad, weight, size, *_windows(call))


def _to_weight(call, grad, x, kernel):
    return CONVOLUTION_WEIGHT(grad, x, kernel, *_windows(call))


def has_channels_last(tensor):
    """As convolutions and pooling count it: of images alone."""
    return tensor.ndim == 4 and lies_with_channels_last(tensor)


def lies_with_channels_last(tensor):
    if 0 in tensor.shape:
        return False
    last = last_strides(tensor.shape)
    dense = _dense_strides(tensor.shape)
    return _lies_as(tensor, last) and not _lies_as(tensor, dense)


def last_strides(shape):
    _, channels, *inner = shape
    steps = [channels * prod(inner[i:]) for i in range(len(inner) + 1)]
    return (steps[0], 1, *steps[1:])


def _dense_strides(shape):
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return tuple(strides)


def _lies_as(tensor, strides):
    each = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return all(extent == 1 or own == expected for extent, own, expected in each)


def images_like(like, channels_last, shape, dtype=None):
    """An empty tensor, as the adapter makes it."""
    dtype = dtype or like.dtype
    if channels_last:
        return like.new_empty_strided(shape, last_strides(shape), dtype=dtype)
    return like.new_empty(shape, dtype=dtype)


def _result(a, b, shape):
    """With the channels last where one of both has them so."""
    return images_like(a, has_channels_last(a) or has_channels_last(b), shape)


def _extents(call):
    """Those of the results."""
    sides = zip(
        call.x.shape[2:],
        call.weight.shape[2:],
        *(call.stride, call.padding, call.extra_padding, call.dilation),
        strict=True,
    )
    return [
        (extent + 2 * padding + extra - dilation * (taps - 1) - 1) // stride + 1
        for extent, taps, stride, padding, extra, dilation in sides
    ]


def _convolution_result(call):
    channels, of_weight = call.x.shape[1], call.weight.shape[1] * call.groups
    if channels != of_weight:
        raise ValueError(
            f"convolution: x has {channels} channels; weight has {call.weight.shape[1]} for each "
            f"of {call.groups} groups"
        )
    if any(extent < 1 for extent in _extents(call)):
        raise ValueError(f"convolution: the result would have the extents {_extents(call)}")
    shape = (call.x.shape[0], call.weight.shape[0], *_extents(call))
    return _result(call.x, call.weight, shape)


def _convolution_axes(call):
    yield Axis({"x": 0}, (0,))
    if call.groups != 1:  # whose parts would be other groups
        return
    filters, channels = {"weight": 0}, {"x": 1, "weight": 1}
    if call.bias is not None:
        filters["bias"], channels["bias"] = 0, SUM
    yield Axis(filters, (1,))
    yield Axis(channels, (SUM,))


def _convolution_gradients(call, wanted, grad):
    grad = grad.to(call.x.dtype)
    if wanted.x and wanted.weight:
        dtype = call.bias.dtype if wanted.bias else None
        of_x, of_weight, of_bias = CONVOLUTION_BACKWARD(
            grad, call.x, call.weight, dtype, *_windows(call)
        )
        return {"x": of_x, "weight": of_weight, "bias": of_bias if wanted.bias else None}
    found = {}
    if wanted.x:
        found["x"] = _to_input(call, grad, call.weight, call.x.shape[2:])
    if wanted.weight:
        found["weight"] = _to_weight(call, grad, call.x, call.weight.shape[2:])
    if wanted.bias:
        found["bias"] = CONVOLUTION_BIAS(grad, call.bias.dtype)
    return found


def _along_filters(vector, like):
    """A vector over filters as a tensor of results."""
    return vector.to(like.dtype).view(1, -1, *(1,) * (len(like.shape) - 2)).expand(like.shape)


def _convolution_tangents(call, along):
    total = total_of(
        None if along.x is None else _forward(call, along.x, call.weight),
        None if along.weight is None else _forward(call, call.x, along.weight),
    )
    if along.bias is None:
        return total
    of_bias = _along_filters(along.bias, _convolution_result(call))
    return of_bias.clone() if total is None else total + of_bias


CONVOLUTION = Operator(
    "convolution",
    _convolution_result,
    axes=_convolution_axes,
    keeps=("x", "weight"),
    knows=("bias",),
    gradients=_convolution_gradients,
    tangents=_convolution_tangents,
    autocast=narrow_inputs("x", "weight", "bias"),
)


def _bilinear(operation, **gradients):
    """What a record says of the derivatives of operation(call, one, other), which is linear in each
    of two tensors. gradients: of either tensor, by its name, from that of the result."""
    first, second = gradients

    def backward(call, wanted, grad):
        asked = {name: each for name, each in gradients.items() if getattr(wanted, name)}
        return {name: gradient(call, grad) for name, gradient in asked.items()}

    def tangents(call, along):
        of_first, of_second = getattr(along, first), getattr(along, second)
        return total_of(
            None if of_first is None else operation(call, of_first, getattr(call, second)),
            None if of_second is None else operation(call, getattr(call, first), of_second),
        )

    return {"keeps": (first, second), "gradients": backward, "tangents": tangents}


def _input_result(call):
    shape = (call.grad_y.shape[0], call.weight.shape[1] * call.groups, *call.size)
    return _result(call.grad_y, call.weight, shape)


def _input_axes(call):
    yield Axis({"grad_y": 0}, (0,))
    if call.groups == 1:
        yield Axis({"grad_y": 1, "weight": 0}, (SUM,))
        yield Axis({"weight": 1}, (1,))


# Also what a transposed convolution is.
CONVOLUTION_INPUT = Operator(
    "convolution_input",
    _input_result,
    outputs=("grad_x",),
    axes=_input_axes,
    autocast=narrow_inputs("grad_y", "weight"),
    **_bilinear(
        lambda call, grad, weight: _to_input(call, grad, weight, call.size),
        grad_y=lambda call, into_x: _forward(call, into_x, call.weight),
        weight=lambda call, into_x: _to_weight(call, call.grad_y, into_x, call.weight.shape[2:]),
    ),
)


def _weight_result(call):
    shape = (call.grad_y.shape[1], call.x.shape[1] // call.groups, *call.kernel)
    return _result(call.x, call.grad_y, shape)


def _weight_axes(call):
    yield Axis({"grad_y": 0, "x": 0}, (SUM,))
    if call.groups == 1:
        yield Axis({"grad_y": 1}, (0,))
        yield Axis({"x": 1}, (1,))


CONVOLUTION_WEIGHT = Operator(
    "convolution_weight",
    _weight_result,
    outputs=("grad_weight",),
    axes=_weight_axes,
    **_bilinear(
        lambda call, grad, x: _to_weight(call, grad, x, call.kernel),
        grad_y=lambda call, into_weight: _forward(call, call.x, into_weight),
        x=lambda call, into_weight: _to_input(call, call.grad_y, into_weight, call.x.shape[2:]),
    ),
)


def _all_results(call):
    bias = call.grad_y.new_empty(
        call.grad_y.shape[1:2] if call.bias_dtype is not None else (0,), dtype=call.bias_dtype
    )
    return (
        _result(call.grad_y, call.weight, call.x.shape),
        _result(call.x, call.grad_y, call.weight.shape),
        bias,
    )


def _all_axes(call):
    def axis(of_bias, *others, **arguments):
        return Axis(arguments, (*others, of_bias if call.bias_dtype is not None else None))

    yield axis(SUM, 0, SUM, grad_y=0, x=0)
    if call.groups == 1:
        yield axis(0, SUM, 0, grad_y=1, weight=0)
        yield axis(None, 1, 1, x=1, weight=1)


def _second_gradients(call, wanted, into_x, into_weight, into_bias):
    """Each of the three is linear in grad_y and, but for bias, in what it is no gradient of."""
    found = {}
    if wanted.grad_y:
        into_bias = None if call.bias_dtype is None else into_bias
        found["grad_y"] = total_of(
            None if into_x is None else _forward(call, into_x, call.weight),
            None if into_weight is None else _forward(call, call.x, into_weight),
            None if into_bias is None else _along_filters(into_bias, call.grad_y),
        )
    if wanted.x and into_weight is not None:
        found["x"] = _to_input(call, call.grad_y, into_weight, call.x.shape[2:])
    if wanted.weight and into_x is not None:
        found["weight"] = _to_weight(call, call.grad_y, into_x, call.weight.shape[2:])
    return found


def _second_tangents(call, along):
    to_x, to_weight = call.x.shape[2:], call.weight.shape[2:]
    of_y, of_x, of_weight = along.grad_y, along.x, along.weight
    none_x, none_weight, none_bias = (torch.zeros_like(each) for each in _all_results(call))
    return (
        total_of(
            none_x,
            None if of_y is None else _to_input(call, of_y, call.weight, to_x),
            None if of_weight is None else _to_input(call, call.grad_y, of_weight, to_x),
        ),
        total_of(
            none_weight,
            None if of_y is None else _to_weight(call, of_y, call.x, to_weight),
            None if of_x is None else _to_weight(call, call.grad_y, of_x, to_weight),
        ),
        none_bias
        if of_y is None or call.bias_dtype is None
        else CONVOLUTION_BIAS(of_y, call.bias_dtype),
    )


# All at once, as nearly every backward wants them.
CONVOLUTION_BACKWARD = Operator(
    "convolution_backward",
    _all_results,
    outputs=("grad_x", "grad_weight", "grad_bias"),
    axes=_all_axes,
    keeps=("grad_y", "x", "weight"),
    gradients=_second_gradients,
    tangents=_second_tangents,
)

CONVOLUTION_BIAS = Operator(
    "convolution_bias",
    lambda call: call.grad_y.new_empty(call.grad_y.shape[1:2], dtype=call.dtype),
    outputs=("grad_bias",),
    axes=lambda call: (Axis({"grad_y": 0}, (SUM,)), Axis({"grad_y": 1}, (0,))),
    knows=("grad_y",),
    gradients=lambda call, wanted, into_bias: {"grad_y": _along_filters(into_bias, call.grad_y)},
    tangents=lambda call, along: CONVOLUTION_BIAS(along.grad_y, call.dtype),
)
RECORDS = (
    CONVOLUTION,
    CONVOLUTION_INPUT,
    CONVOLUTION_WEIGHT,
    CONVOLUTION_BACKWARD,
    CONVOLUTION_BIAS,
)
