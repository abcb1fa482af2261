# SPDX-License-Identifier: Apache-2.0
"""The records of group_norm and batch_norm, and of their gradients. What no kernel computes of
derivatives are PyTorch's operations, by the formulas of the other norms."""

from math import prod

import torch

from isobit.torch import formulas
from isobit.torch.convolving import images_like, lies_with_channels_last
from isobit.torch.norms import LAYER_NORM, Options
from isobit.torch.records import SUM, Axis, Operator, float32_inputs
from isobit.torch.settings import settings


class _Elements(formulas.Rows):
    """Rows whose elements have weights of their own: what shares one is added up elsewhere."""

    def columns(self, v):
        return v


def _real(x):
    return torch.promote_types(x.dtype, torch.float32)


def _like_x(x):
    """An empty tensor, as the adapter makes it."""
    return images_like(x, lies_with_channels_last(x), x.shape)


def _trains(call):
    return getattr(call, "training", True)


def _rows(call, v):
    """What is normalised together."""
    if v is None:
        return None
    groups = getattr(call, "groups", 0)
    if groups:
        return v.reshape(v.shape[0], groups, prod(v.shape[1:]) // groups)
    return v.transpose(0, 1).flatten(1)


def _back(call, rows):
    """The way back."""
    if getattr(call, "groups", 0):
        return rows.reshape(call.x.shape)
    return rows.reshape(call.x.transpose(0, 1).shape).transpose(0, 1)


def _spread(call, of_channels):
    """What elements have of their channel."""
    return None if of_channels is None else _column(call, of_channels).expand(call.x.shape)


def _column(call, of_channels):
    return of_channels.reshape(-1, *(1,) * (call.x.ndim - 2))


def _of_channels(v):
    return v.sum((0, *range(2, v.ndim)))


def _known(call):
    """Without training: x̂, 1 / sigma of each channel and the weight, in double."""
    column = [
        None if each is None else _column(call, each.double())
        for each in (call.running_mean, call.running_var, call.weight)
    ]
    rstd = (column[1] + call.eps).rsqrt()
    weight = torch.ones_like(rstd) if column[2] is None else column[2]
    return (call.x.double() - column[0]) * rstd, rstd, weight


def _zero(value, like):
    return torch.zeros_like(like, dtype=torch.float64) if value is None else value.double()


def _output_tangent(call, along):
    weight_t, bias_t = _spread(call, along.weight), _spread(call, along.bias)
    if _trains(call):
        parts = (call.x, _spread(call, call.weight), along.x, weight_t, bias_t)
        rows = [_rows(call, part) for part in parts]
        options = Options(call.eps)
        return _back(call, formulas.output_tangent(LAYER_NORM, options, *rows, kind=_Elements))
    x_hat, rstd, weight = _known(call)
    x_t = _zero(along.x, call.x) * rstd * weight
    return x_t + _zero(weight_t, call.x) * x_hat + _zero(bias_t, call.x)


def _cotangents(call, to_x, to_weight, to_bias):
    """The gradients for grad_y, x and weight of what backward returned."""
    to_weight, to_bias = _spread(call, to_weight), _spread(call, to_bias)
    if _trains(call):
        parts = (call.grad_y, call.x, _spread(call, call.weight), to_x, to_weight, to_bias)
        rows = [_rows(call, part) for part in parts]
        found = formulas.gradient_cotangents(LAYER_NORM, Options(call.eps), *rows, kind=_Elements)
        for_grad_y, for_x, for_weight = (_back(call, each) for each in found)
        return for_grad_y, for_x, _of_channels(for_weight)
    x_hat, rstd, weight = _known(call)
    u, v, t = (_zero(each, call.x) for each in (to_x, to_weight, to_bias))
    g = call.grad_y.double()
    return u * weight * rstd + v * x_hat + t, v * g * rstd, _of_channels(u * g * rstd)


def _gradient_tangents(call, along):
    """The tangents of dx, dw and db."""
    weight_t = _spread(call, along.weight)
    if _trains(call):
        given = [_rows(call, e) for e in (call.grad_y, call.x, _spread(call, call.weight))]
        moved = [_rows(call, e) for e in (along.grad_y, along.x, weight_t)]
        found = formulas.gradient_tangents(
            LAYER_NORM, Options(call.eps), _incoming(given), _incoming(moved), kind=_Elements
        )
        dx, dw, db = (_back(call, each) for each in found)
    else:
        x_hat, rstd, weight = _known(call)
        g, g_t = call.grad_y.double(), _zero(along.grad_y, call.x)
        dx = rstd * (weight * g_t + _zero(weight_t, call.x) * g)
        dw = g_t * x_hat + g * _zero(along.x, call.x) * rstd
        db = g_t
    return dx, _of_channels(dw), _of_channels(db)


def _incoming(parts):
    grad_y, x, weight = parts
    return formulas.Given(grad_y, x, weight)


def _backward_results(call):
    dtype = _real(call.x) if call.weight is None else call.weight.dtype
    channels = call.x.shape[1:2]
    return (
        _like_x(call.x) if call.needs_x else call.x.new_empty(0),
        call.x.new_empty(channels if call.needs_weight else (0,), dtype=dtype),
        call.x.new_empty(channels if call.needs_bias else (0,), dtype=dtype),
    )


def _wanted(call, results):
    needs = (call.needs_x, call.needs_weight, call.needs_bias)
    return tuple(each if want else None for each, want in zip(results, needs, strict=True))


def _second_gradients(call, _wanted_of, *to):
    for_grad_y, for_x, for_weight = _cotangents(call, *_wanted(call, to))
    weight = None if call.weight is None else for_weight.to(call.weight.dtype)
    return {
        "grad_y": for_grad_y.to(call.grad_y.dtype),
        "x": for_x.to(call.x.dtype),
        "weight": weight,
    }


def _second_tangents(call, along):
    outputs = (call.grad_x, call.grad_weight, call.grad_bias)
    found = _wanted(call, _gradient_tangents(call, along))
    return tuple(
        (call.x.new_empty(0) if each is None else each).to(output.dtype)
        for each, output in zip(found, outputs, strict=True)
    )


def _first_gradients(call, wanted, found):
    """By the arguments' names; found by backward."""
    grad_x, grad_weight, grad_bias = found
    bias = None if call.bias is None or not wanted.bias else grad_bias.to(call.bias.dtype)
    return {
        "x": grad_x if wanted.x else None,
        "weight": grad_weight if wanted.weight else None,
        "bias": bias,
    }


_GRADIENTS = ("grad_x", "grad_weight", "grad_bias")


def _moments(call, *rows):
    """What backward is given of the rows that were summed: three numbers of each."""
    return call.x.new_empty((*rows, 3) if rows else (0,), dtype=_real(call.x))


def _group_results(call):
    return _like_x(call.x), _moments(call, call.x.shape[0], call.groups)


def _group_gradients(call, wanted, grad_y, _of_moments):
    if grad_y is None:
        return {}
    needs = (bool(wanted.x), bool(wanted.weight), bool(wanted.bias))
    given = (grad_y.to(call.x.dtype), call.x, call.weight, call.moments, call.groups, call.eps)
    return _first_gradients(call, wanted, GROUP_NORM_BACKWARD(*given, *needs))


def _group_tangents(call, along):
    """Moments do not move: they are a way to the same gradients."""
    return _output_tangent(call, along).to(call.y.dtype), torch.zeros_like(call.moments)


def _group_axes(call):
    """Images know nothing of each other."""
    yield Axis({"x": 0}, (0, 0))


def _group_backward_axes(call):
    """Sums over images are added up."""
    given = dict.fromkeys(GROUP_NORM_BACKWARD.given(call), 0)
    given.pop("weight", None)
    yield Axis(given, _wanted(call, (0, SUM, SUM)))


GROUP_NORM = Operator(
    "group_norm",
    _group_results,
    outputs=("y", "moments"),
    axes=_group_axes,
    keeps=("x", "weight", "moments"),
    knows=("bias", "y"),
    gradients=_group_gradients,
    tangents=_group_tangents,
    autocast=float32_inputs("x", when=lambda call: not settings.autocast_keeps_dtype),
)
GROUP_NORM_BACKWARD = Operator(
    "group_norm_backward",
    _backward_results,
    outputs=_GRADIENTS,
    like="x",
    axes=_group_backward_axes,
    keeps=("grad_y", "x", "weight"),
    knows=_GRADIENTS,
    gradients=_second_gradients,
    tangents=_second_tangents,
)


def _batch_results(call):
    channels = call.x.shape[1:2]

    def moved(running):
        moves = call.training and running is not None
        return call.x.new_empty(channels if moves else (0,), dtype=_real(call.x))

    moments = _moments(call, *(channels if call.training else ()))
    return _like_x(call.x), moved(call.running_mean), moved(call.running_var), moments


def _batch_gradients(call, wanted, grad_y, _next_mean, _next_var, _of_moments):
    if wanted.running_mean or wanted.running_var:
        raise NotImplementedError("batch_norm has no derivative by running statistics; detach them")
    if grad_y is None:
        return {}
    needs = (bool(wanted.x), bool(wanted.weight), bool(wanted.bias))
    if call.training:
        known = (None, None, call.moments)
    else:
        known = (call.running_mean, call.running_var, None)
    given = (grad_y.to(call.x.dtype), call.x, call.weight, *known, call.training, call.eps)
    return _first_gradients(call, wanted, BATCH_NORM_BACKWARD(*given, *needs))


def _batch_tangents(call, along):
    """What becomes of running statistics does not move: PyTorch's have no derivative either."""
    moved = (call.next_mean, call.next_var, call.moments)
    zeros = (call.x.new_zeros(each.shape, dtype=each.dtype) for each in moved)
    return _output_tangent(call, along).to(call.y.dtype), *zeros


_RUNNING = ("running_mean", "running_var")
_OF_CHANNELS = ("weight", "bias", *_RUNNING, "moments")


def _channels_of(call, *names):
    given = dict.fromkeys(names, 1)
    return given | {n: 0 for n in _OF_CHANNELS if getattr(call, n, None) is not None}


def _batch_axes(call):
    """Channels know nothing of each other, nor images without training."""
    moves = [
        0 if call.training and each is not None else None
        for each in (call.running_mean, call.running_var)
    ]
    yield Axis(_channels_of(call, "x"), (1, *moves, 0 if call.training else None))
    if not call.training:
        yield Axis({"x": 0}, (0, None, None, None))


def _batch_backward_axes(call):
    yield Axis(_channels_of(call, "grad_y", "x"), _wanted(call, (1, 0, 0)))
    if not call.training:
        yield Axis({"grad_y": 0, "x": 0}, _wanted(call, (0, SUM, SUM)))


BATCH_NORM = Operator(
    "batch_norm",
    _batch_results,
    outputs=("y", "next_mean", "next_var", "moments"),
    axes=_batch_axes,
    keeps=("x", "weight", *_RUNNING, "moments"),
    spares=lambda call: _RUNNING if call.training else (),  # which are then written
    knows=("bias", "y", "next_mean", "next_var"),
    gradients=_batch_gradients,
    tangents=_batch_tangents,
)
BATCH_NORM_BACKWARD = Operator(
    "batch_norm_backward",
    _backward_results,
    outputs=_GRADIENTS,
    like="x",
    axes=_batch_backward_axes,
    keeps=("grad_y", "x", "weight", *_RUNNING),
    knows=_GRADIENTS,
    gradients=_second_gradients,
    tangents=_second_tangents,
)

RECORDS = (GROUP_NORM, GROUP_NORM_BACKWARD, BATCH_NORM, BATCH_NORM_BACKWARD)
