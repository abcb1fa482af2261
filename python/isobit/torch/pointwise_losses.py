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
    return BACKWARD(grad_loss, *given)


def _weighted(call, values):
    return values if call.weight is None else values * call.weight


def _derivative(call, name):
    """Of the losses, by an argument that is neither x nor a difference's target: they are linear in
    each, and made of losses of other arguments."""
    if name == "weight":
        return LOSS(call.x, call.target, None, call.pos_weight, call.kind, call.beta)
    # log(1 + e^-x), the loss of a target of 1.
    bent = LOSS(call.x, torch.ones_like(call.target), None, None, _BCE, call.beta)
    if name == "pos_weight":
        return _weighted(call, call.target * bent)
    falls = -call.x.to(bent.dtype)
    if call.pos_weight is not None:
        falls = falls + (call.pos_weight.to(bent.dtype) - 1) * bent
    return _weighted(call, falls)


def _other_names(call):
    return ("weight", "pos_weight", "target") if call.kind == _BCE else ("weight", "pos_weight")


def _gradients(call, wanted, grad_loss):
    others = [name for name in _other_names(call) if getattr(wanted, name)]
    found = {
        name: (grad_loss * _derivative(call, name)).to(getattr(call, name).dtype) for name in others
    }
    if wanted.x or (wanted.target and "target" not in found):
        found["x"] = _slope(grad_loss, call)
        found.setdefault("target", -found["x"] if wanted.target else None)
    return found


def _tangents(call, along):
    terms, others = [], _other_names(call)
    for name in _INPUTS:
        tangent = getattr(along, name)
        if tangent is None:
            continue
        if name in others:
            terms.append(_derivative(call, name) * tangent)
        else:
            ones = torch.ones_like(call.x, dtype=_real(call.x))
            slope = _slope(ones, call).to(_real(call.x))
            terms.append((slope if name == "x" else -slope) * tangent)
    return total_of(*terms)


def _of_slope(call, name):
    """The derivative of the slope of the losses by an argument."""
    real = _real(call.x)
    if name == "weight":
        given = (call.x, call.target, None, call.pos_weight, call.kind, call.beta)
        return BACKWARD(torch.ones_like(call.x, dtype=real), *given).to(real)
    if name not in _other_names(call):
        return _second(call) if name == "x" else -_second(call)
    small = torch.sigmoid(-call.x.to(real))
    if name == "pos_weight":
        return _weighted(call, -call.target * small)
    more = 0 if call.pos_weight is None else (call.pos_weight.to(real) - 1) * small
    return _weighted(call, -1 - more + torch.zeros_like(small))


def _second(call):
    """Of the loss by x, twice."""
    real = _real(call.x)
    x, target = call.x.to(real), call.target.to(real)
    if call.kind == CODES["mse"]:
        found = torch.full_like(x, 2)
    elif call.kind == CODES["l1"]:
        found = torch.zeros_like(x)
    elif call.kind == _BCE:
        found = torch.sigmoid(x) * torch.sigmoid(-x)
        if call.pos_weight is not None:
            found = found * (1 + (call.pos_weight.to(real) - 1) * target)
    else:
        inside = ((x - target).abs() < call.beta).to(real)
        # Beside a beta of 0 nothing is inside.
        divides = call.kind == CODES["smooth_l1"] and call.beta != 0
        found = inside / call.beta if divides else inside
    return _weighted(call, found)


def _gradients_of_gradient(call, wanted, into):
    real = _real(call.x)
    found = {}
    if wanted.grad_loss:
        found["grad_loss"] = _slope(into.to(real), call).to(real)
    for name in _INPUTS:
        if getattr(wanted, name):
            by = into * _of_slope(call, name) * call.grad_loss
            found[name] = by.to(getattr(call, name).dtype)
    return found


def _tangents_of_gradient(call, along):
    terms = []
    if along.grad_loss is not None:
        terms.append(_slope(along.grad_loss, call))
    for name in _INPUTS:
        tangent = getattr(along, name)
        if tangent is not None:
            terms.append((_of_slope(call, name) * call.grad_loss * tangent).to(call.x.dtype))
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
