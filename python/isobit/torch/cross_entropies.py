# SPDX-License-Identifier: Apache-2.0
"""The records of cross entropy and its gradient. It is differentiated by its gradient; what else
there is of derivatives are PyTorch's operations. What forward keeps for backward, the largest
element of each row and the sum beside it, has no derivatives: both follow from the logits."""

import torch

from isobit.torch.records import Axis, Operator, total_of
from isobit.torch.softmaxes import SOFTMAX

_OF_ROWS = ("target", "largest", "sum", "grad_loss")


def _real(x):
    return torch.promote_types(x.dtype, torch.float32)


def _axes(call):
    """Of rows, where no sum over them is wanted."""
    if getattr(call, "totals", False):
        return
    of_rows = [name for name in _OF_ROWS if getattr(call, name, None) is not None]
    for dim in range(call.x.ndim - 1):
        results = (dim,) if "grad_loss" in of_rows else (dim,) * 5
        yield Axis(dict.fromkeys(("x", *of_rows), dim), results)


def _results(call):
    rows, real = call.x.shape[:-1], _real(call.x)
    one = () if call.totals else (*rows, 0)
    shapes = (rows, rows, rows, one, one)
    return tuple(call.x.new_empty(shape, dtype=real) for shape in shapes)


def _backward(call, grad):
    return CROSS_ENTROPY_BACKWARD(
        grad,
        call.x,
        call.target,
        call.weight,
        call.largest,
        call.sum,
        call.ignore_index,
        call.label_smoothing,
        call.z_loss,
    )


def refuse(operator, weight):
    """A derivative by the weights of classes; weight: whether one is wanted, or a tangent."""
    if weight is not None and weight is not False:
        raise NotImplementedError(f"{operator} has no derivative by weight; detach it")


def _gradients(call, wanted, loss, _largest, _sum, total, _count):
    refuse("cross_entropy", wanted.weight)
    if not call.totals:
        total = None
    grad = total_of(loss, None if total is None else total.expand(call.x.shape[:-1]))
    return {} if grad is None else {"x": _backward(call, grad)}


def _along(call, slopes, tangent):
    """Of each row's loss, where x moves along a tangent."""
    return (slopes.to(_real(call.x)) * tangent).sum(-1)


def _tangents(call, along):
    refuse("cross_entropy", along.weight)
    ones = torch.ones_like(call.largest)
    loss = _along(call, _backward(call, ones), along.x)
    total = loss.sum() if call.totals else loss.new_zeros((*loss.shape, 0))
    zeros = (torch.zeros_like(loss), torch.zeros_like(loss))
    return loss, *zeros, total, torch.zeros_like(total)


CROSS_ENTROPY = Operator(
    "cross_entropy",
    _results,
    outputs=("loss", "largest", "sum", "total", "count"),
    rows=("x", "target"),
    together=lambda call: not call.totals,
    axes=_axes,
    keeps=("x", "target", "weight", "largest", "sum"),
    gradients=_gradients,
    tangents=_tangents,
)


def _moved(call, direction):
    """How a row's gradients move, but for the factor grad_loss, where x moves in a direction: the
    derivative is as symmetric as every second one."""
    real = _real(call.x)
    y = SOFTMAX(call.x, None, 1.0, False, real)
    direction = direction.to(real)
    along = (y * direction).sum(-1, keepdim=True)
    there = call.target != call.ignore_index
    own = torch.ones_like(call.largest)
    weights = call.x.shape[-1]
    if call.weight is not None:
        own = call.weight[call.target.masked_fill(~there, 0)]
        weights = call.weight.sum()
    lse = call.largest + call.sum.log()
    part = own * (1 - call.label_smoothing + 2 * call.z_loss * lse)
    part = part + call.label_smoothing / call.x.shape[-1] * weights
    squared = 2 * call.z_loss * own
    moved = y * (part.unsqueeze(-1) * (direction - along) + squared.unsqueeze(-1) * along)
    return moved.masked_fill(~there.unsqueeze(-1), 0)


def _backward_gradients(call, wanted, grad):
    found = {}
    if wanted.grad_loss:
        slopes = _backward(call, torch.ones_like(call.grad_loss))
        found["grad_loss"] = _along(call, slopes, grad)
    if wanted.x:
        found["x"] = (call.grad_loss.unsqueeze(-1) * _moved(call, grad)).to(call.x.dtype)
    return found


def _backward_tangents(call, along):
    terms = []
    if along.grad_loss is not None:
        terms.append(_backward(call, along.grad_loss))
    if along.x is not None:
        moved = call.grad_loss.unsqueeze(-1) * _moved(call, along.x)
        terms.append(moved.to(call.x.dtype))
    return total_of(*terms) if terms else torch.zeros_like(call.x)


CROSS_ENTROPY_BACKWARD = Operator(
    "cross_entropy_backward",
    lambda call: call.x.new_empty(call.x.shape),
    outputs=("grad_x",),
    like="x",
    rows=("grad_loss", "x", "target", "largest", "sum"),
    axes=_axes,
    keeps=("grad_loss", "x", "target", "weight", "largest", "sum"),
    gradients=_backward_gradients,
    tangents=_backward_tangents,
)

RECORDS = (CROSS_ENTROPY, CROSS_ENTROPY_BACKWARD)
