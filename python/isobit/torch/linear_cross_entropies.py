# SPDX-License-Identifier: Apache-2.0
"""The records of the cross entropy of a linear layer's results, and of its gradients. Derivatives
of higher order are those of the two operators one after the other, and have all logits at once."""

from types import SimpleNamespace

import torch

from isobit.torch.cross_entropies import CROSS_ENTROPY_BACKWARD, refuse
from isobit.torch.products import MATMUL, NONE
from isobit.torch.records import SUM, Axis, Operator, narrow_inputs, total_of

_OF_ROWS = ("target", "largest", "sum", "grad_loss")
_TENSORS = ("x", "weight", "bias")


def _real(x):
    return torch.promote_types(x.dtype, torch.float32)


def _axes(call):
    """Of rows, where no sum over them is wanted."""
    if not call.totals:
        for dim in range(call.x.ndim - 1):
            yield Axis({"x": dim, "target": dim}, (dim,) * 5)


def _backward_axes(call):
    wanted = (call.needs_x, call.needs_weight, call.bias_dtype is not None)
    for dim in range(call.x.ndim - 1):
        results = zip((dim, SUM, SUM), wanted, strict=True)
        cut = tuple(each if want else None for each, want in results)
        yield Axis(dict.fromkeys(("x", *_OF_ROWS), dim), cut)


def _results(call):
    cols, of_weight = call.x.shape[-1], call.weight.shape[-1]
    if cols != of_weight:
        raise ValueError(
            f"linear_cross_entropy: weight has rows of {of_weight} elements; x has rows of {cols}"
        )
    rows, real = call.x.shape[:-1], _real(call.x)
    one = () if call.totals else (*rows, 0)
    shapes = (rows, rows, rows, one, one)
    return tuple(call.x.new_empty(shape, dtype=real) for shape in shapes)


# The two operators of a call.


def _flat(tensor):
    return tensor.reshape(-1, tensor.shape[-1])


def _logits(call):
    return MATMUL(_flat(call.x), call.weight.mT, call.bias, NONE, None)


def _along_logits(call, along):
    x, weight, bias = (getattr(along, name) for name in _TENSORS)
    found = total_of(
        None if x is None else _flat(x) @ call.weight.mT,
        None if weight is None else _flat(call.x) @ weight.mT,
        None if bias is None else bias.to(call.x.dtype).expand(call.x[..., 0].numel(), -1),
    )
    return None if found is None else found.to(call.x.dtype)


def _inner(call, grad_loss):
    """Backward's call of cross_entropy."""
    options = ("ignore_index", "label_smoothing", "z_loss")
    return SimpleNamespace(
        grad_loss=grad_loss.reshape(-1),
        x=_logits(call),
        target=call.target.reshape(-1),
        weight=call.class_weight,
        largest=call.largest.reshape(-1),
        sum=call.sum.reshape(-1),
        **{name: getattr(call, name) for name in options},
    )


def _slopes(inner):
    return CROSS_ENTROPY_BACKWARD(*CROSS_ENTROPY_BACKWARD.arguments(inner))


def _into(call, into_logits):
    """Gradients of what logits are made of, from theirs."""
    return {
        "x": (into_logits @ call.weight).view_as(call.x),
        "weight": into_logits.mT @ _flat(call.x),
        "bias": into_logits.sum(0),
    }


def _named(call, wanted, *found):
    """{name: gradient} of sums of what was found, in the types of what they are gradients of."""
    result = {}
    for name in _TENSORS:
        total = total_of(*(each[name] for each in found if name in each))
        if getattr(wanted, name) and total is not None:
            result[name] = total.to(getattr(call, name).dtype)
    return result


# Of forward.


def _gradients(call, wanted, loss, _largest, _sum, total, _count):
    refuse("linear_cross_entropy", wanted.class_weight)
    if not call.totals:
        total = None
    grad = total_of(loss, None if total is None else total.expand(call.x.shape[:-1]))
    if grad is None:
        return {}
    found = LINEAR_CROSS_ENTROPY_BACKWARD(
        *(grad, call.x, call.weight, call.bias, call.target, call.class_weight),
        *(call.largest, call.sum, call.ignore_index, call.label_smoothing, call.z_loss),
        *(wanted.x, wanted.weight, call.bias.dtype if wanted.bias else None),
    )
    named = zip(_TENSORS, found, strict=True)
    return {name: each for name, each in named if getattr(wanted, name)}


def _tangents(call, along):
    refuse("linear_cross_entropy", along.class_weight)
    slopes = _slopes(_inner(call, torch.ones_like(call.largest)))
    moved = _along_logits(call, along)
    loss = torch.zeros_like(call.largest)
    if moved is not None:
        loss = (slopes.to(_real(call.x)) * moved).sum(-1).view_as(loss)
    total = loss.sum() if call.totals else loss.new_zeros((*loss.shape, 0))
    return loss, torch.zeros_like(loss), torch.zeros_like(loss), total, torch.zeros_like(total)


LINEAR_CROSS_ENTROPY = Operator(
    "linear_cross_entropy",
    _results,
    outputs=("loss", "largest", "sum", "total", "count"),
    rows=("x", "target"),
    together=lambda call: not call.totals,
    axes=_axes,
    keeps=(*_TENSORS, "target", "class_weight", "largest", "sum"),
    gradients=_gradients,
    tangents=_tangents,
    autocast=narrow_inputs("x", "weight", "bias"),
)


# Of backward: with g the gradient of logits, grad_x = g weight, grad_weight = g' x, grad_bias the
# sum of g.


def _gradients_of(call):
    bias = call.weight.new_empty(call.weight.shape[:1], dtype=call.bias_dtype or call.weight.dtype)
    return (
        call.x.new_empty(call.x.shape if call.needs_x else (0,)),
        call.weight.new_empty(call.weight.shape if call.needs_weight else (0,)),
        bias if call.bias_dtype is not None else bias.new_empty((0,)),
    )


def _backward_gradients(call, wanted, into_x, into_weight, into_bias):
    along = SimpleNamespace(
        x=into_x if call.needs_x else None,
        weight=into_weight if call.needs_weight else None,
        bias=into_bias if call.bias_dtype is not None else None,
    )
    inner = _inner(call, call.grad_loss)
    slopes, direct = _slopes(inner), {}
    if along.weight is not None:
        direct["x"] = (slopes @ along.weight).view_as(call.x)
    if along.x is not None:
        direct["weight"] = slopes.mT @ _flat(along.x)
    into_slopes = _along_logits(call, along)
    if into_slopes is None:
        return {}
    of_inner = CROSS_ENTROPY_BACKWARD.gradients(
        inner, SimpleNamespace(grad_loss=wanted.grad_loss, x=True), into_slopes
    )
    result = _named(call, wanted, direct, _into(call, of_inner["x"]))
    if wanted.grad_loss:
        result["grad_loss"] = of_inner["grad_loss"].view_as(call.grad_loss)
    return result


def _backward_tangents(call, along):
    inner = _inner(call, call.grad_loss)
    grad_loss = along.grad_loss
    moved = CROSS_ENTROPY_BACKWARD.tangents(
        inner,
        SimpleNamespace(
            grad_loss=None if grad_loss is None else grad_loss.reshape(-1),
            x=_along_logits(call, along),
        ),
    )
    found = _into(call, moved)
    slopes = _slopes(inner)
    if along.weight is not None:
        found["x"] = found["x"] + (slopes @ along.weight).view_as(call.x)
    if along.x is not None:
        found["weight"] = found["weight"] + slopes.mT @ _flat(along.x)
    return tuple(
        found[name].to(like.dtype) if like.shape != (0,) else torch.zeros_like(like)
        for name, like in zip(_TENSORS, _gradients_of(call), strict=True)
    )


LINEAR_CROSS_ENTROPY_BACKWARD = Operator(
    "linear_cross_entropy_backward",
    _gradients_of,
    outputs=("grad_x", "grad_weight", "grad_bias"),
    like="x",
    rows=("grad_loss", "x", "target", "largest", "sum"),
    # A sum over all rows is not one for each sample, and what is not wanted has no dimensions.
    together=lambda call: call.needs_x and not call.needs_weight and call.bias_dtype is None,
    axes=_backward_axes,
    keeps=("grad_loss", *_TENSORS, "target", "class_weight", "largest", "sum"),
    gradients=_backward_gradients,
    tangents=_backward_tangents,
)

RECORDS = (LINEAR_CROSS_ENTROPY, LINEAR_CROSS_ENTROPY_BACKWARD)
