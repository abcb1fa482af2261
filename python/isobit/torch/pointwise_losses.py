# SPDX-License-Identifier: Apache-2.0
"""The records of losses of single elements. Their second derivatives are PyTorch's operations, and
so have derivatives of their own."""

import torch

from isobit.torch.records import Axis, Operator, total_of

# As isobit_pointwise_loss_forward_args numbers them.
KINDS = ("mse", "l1", "smooth_l1", "huber", "bce_with_logits")
CODES = {name: code for code, name in enumerate(KINDS)}
_BCE = CODES["bce_with_logits"]
_INPUTS = ("x", "target", "weight", "pos_weight")


def _real(x):
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _axes(call):
    for dim in range(call.x.ndim):
        named = (name for name in ("grad_loss", *_INPUTS) if getattr(call, name, None) is not None)
        yield Axis(dict.fromkeys(named, dim), (dim,))


def _slope(grad_loss, call):
    given = (call.x, call.target, call.weight, call.pos_weight, call.kind, call.beta)
    return BACKWARD.operator(grad_loss, *given)


def _refuse(call, by):
    """by: of each tensor whether a derivative by it is wanted, or its tangent or None."""
    for name in ("weight", "pos_weight"):
        if _asks(getattr(by, name)):
            raise NotImplementedError(f"pointwise_loss has no derivative by {name}")
    if _asks(by.target) and call.kind == _BCE:
        raise NotImplementedError("binary_cross_entropy_with_logits has no derivative by target")


def _asks(flag_or_tangent):
    return flag_or_tangent is not None and flag_or_tangent is not False


def _gradients(call, wanted, grad_loss):
    _refuse(call, wanted)
    grad_x = _slope(grad_loss, call)
    return {"x": grad_x, "target": -grad_x if wanted.target else None}


def _tangents(call, along):
    _refuse(call, along)
    terms = []
    for name, sign in (("x", 1), ("target", -1)):
        tangent = getattr(along, name)
        if tangent is not None:
            slope = _slope(torch.ones_like(call.x, dtype=_real(call.x)), call).to(_real(call.x))
            terms.append(sign * slope * tangent)
    return total_of(*terms)


def _second(call):
    """Of the loss by x, twice."""
    difference = call.x - call.target
    if call.kind == CODES["mse"]:
        found = torch.full_like(difference, 2)
    elif call.kind == CODES["l1"]:
        found = torch.zeros_like(difference)
    elif call.kind == _BCE:
        y = torch.sigmoid(call.x)
        found = y * torch.sigmoid(-call.x)
        if call.pos_weight is not None:
            found = found * (1 + (call.pos_weight - 1) * call.target)
    else:
        inside = (difference.abs() < call.beta).to(call.x.dtype)
        # Beside a beta of 0 nothing is inside.
        divides = call.kind == CODES["smooth_l1"] and call.beta != 0
        found = inside / call.beta if divides else inside
    return found if call.weight is None else found * call.weight


def _gradients_of_gradient(call, wanted, into):
    _refuse(call, wanted)
    by_x = None
    if wanted.x or wanted.target:
        by_x = into * (_second(call) * call.grad_loss).to(call.x.dtype)
    return {
        "grad_loss": _slope(into.to(_real(call.x)), call).to(_real(call.x)),
        "x": by_x,
        "target": -by_x if wanted.target else None,
    }


def _tangents_of_gradient(call, along):
    _refuse(call, along)
    terms = []
    if along.grad_loss is not None:
        terms.append(_slope(along.grad_loss, call))
    for name, sign in (("x", 1), ("target", -1)):
        tangent = getattr(along, name)
        if tangent is not None:
            terms.append(sign * (_second(call) * call.grad_loss * tangent).to(call.x.dtype))
    return total_of(*terms)


LOSS = Operator(
    "pointwise_loss",
    lambda call: call.x.new_empty(call.x.shape, dtype=_real(call.x)),
    outputs=("loss",),
    axes=_axes,
    keeps=_INPUTS,
    gradients=_gradients,
    tangents=_tangents,
)
BACKWARD = Operator(
    "pointwise_loss_backward",
    lambda call: call.x.new_empty(call.x.shape),
    outputs=("grad_x",),
    axes=_axes,
    keeps=("grad_loss", *_INPUTS),
    gradients=_gradients_of_gradient,
    tangents=_tangents_of_gradient,
)
RECORDS = (LOSS, BACKWARD)
