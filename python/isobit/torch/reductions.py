# SPDX-License-Identifier: Apache-2.0
"""The records of sums, means, spreads and norms over dimensions, and of their gradients. `dims`
counts from the end, so what stands in front of x changes none of them.

Sums and means are linear, so each is the other's gradient spread out. The others are differentiated
by reduce_backward, whose own derivatives are made of the same three operators, and so are those of
any order.
"""

import torch

from isobit.torch.records import Axis, Operator, float32_result, total_of

# By their numbers in the C ABI.
KINDS = ("sum", "mean", "var", "std", "l2", "l1", "largest", "smallest", "nonzero", "max", "min")
CODES = {name: code for code, name in enumerate(KINDS)}
_NORMS = tuple(CODES[name] for name in ("l2", "l1", "largest", "smallest", "nonzero"))
# These have no curvature.
_ROUGH = tuple(CODES[name] for name in ("l1", "largest", "smallest", "nonzero", "max", "min"))


def _kept(rank, dims):
    """The dimensions that are not reduced."""
    return [dim for dim in range(rank) if dim - rank not in dims]


def _result(call):
    shape = [call.x.shape[dim] for dim in _kept(call.x.ndim, call.dims)]
    return call.x.new_empty(shape, dtype=call.x.dtype if call.dtype is None else call.dtype)


def spread(values, shape, dims):
    """A view of a value for each element that was reduced to it."""
    for dim in sorted(dims):
        values = values.unsqueeze(dim + len(shape))
    return values.expand(shape)


def _axes(call):
    for place, dim in enumerate(_kept(call.x.ndim, call.dims)):
        yield Axis({"x": dim}, (place,))


def _sum(x, dims):
    return TOTAL(x, dims)


def _autocast(norm_or_sum):
    """PyTorch's rule for sums and norms: under autocast for CUDA they are float32. It has none for
    means and spreads."""
    rule = float32_result("dtype")

    def only(record, call):
        return rule(record, call) if norm_or_sum(call) else {}

    only.keys = rule.keys
    return only


def _total_gradients(call, _wanted, grad):
    shape = call.x.shape
    if not call.mean:
        return {"x": spread(grad.to(call.x.dtype), shape, call.dims)}
    along = spread(grad.to(call.x.dtype), shape, call.dims)  # tells the shape alone
    return {"x": REDUCE_BACKWARD(grad, along, call.dims, CODES["mean"])}


TOTAL = Operator(
    "total",
    _result,
    rows=("x",),
    axes=_axes,
    knows=("x",),
    gradients=_total_gradients,
    tangents=lambda call, along: TOTAL(along.x, call.dims, call.mean, call.dtype),
    autocast=_autocast(lambda call: not call.mean),
)


def _slope(call, x):
    """What an element of x moves its result by."""
    ones = x.new_ones([x.shape[dim] for dim in _kept(x.ndim, call.dims)])
    return REDUCE_BACKWARD(ones, x, call.dims, call.kind, call.correction)


def _gradients(call, _wanted, grad):
    return {"x": REDUCE_BACKWARD(grad, call.x, call.dims, call.kind, call.correction)}


def _tangents(call, along):
    moved = _sum(_slope(call, call.x) * along.x, call.dims)
    return moved if call.dtype is None else moved.to(call.dtype)


REDUCE = Operator(
    "reduce",
    _result,
    rows=("x",),
    axes=_axes,
    keeps=("x",),
    gradients=_gradients,
    tangents=_tangents,
    autocast=_autocast(lambda call: call.kind in _NORMS),
)


def _curved(call, along):
    """The gradient's change where x moves along `along`; None where there is none. Of a variance it
    is the gradient of another x. A deviation d is s u, where s is the result and u its slope: ds is
    sum(u dx) and du the slope's own, less u ds, over s."""
    if call.kind in (*_ROUGH, CODES["sum"], CODES["mean"]):
        return None
    x, dims, correction = call.x, call.dims, call.correction
    if call.kind == CODES["var"]:
        return REDUCE_BACKWARD(call.grad_y, along, dims, call.kind, correction)
    slope, y = _slope(call, x), REDUCE(x, dims, call.kind, correction)
    # Where a deviation or a length is 0 the slope is, too, and has no derivative.
    over = spread((call.grad_y.to(x.dtype) / y).masked_fill(y == 0, 0), x.shape, dims)
    moved = along
    if call.kind == CODES["std"]:  # half of a variance's gradient is deviations over the divisor
        halves = torch.full_like(call.grad_y, 0.5, dtype=x.dtype)
        moved = REDUCE_BACKWARD(halves, along, dims, CODES["var"], correction)
    return over * (moved - slope * spread(_sum(slope * along, dims), x.shape, dims))


def _backward_gradients(call, wanted, grad):
    found = {}
    if wanted.grad_y:
        if call.kind in (CODES["sum"], CODES["mean"]):
            found["grad_y"] = TOTAL(grad, call.dims, call.kind == CODES["mean"])
        else:
            found["grad_y"] = _sum(_slope(call, call.x) * grad, call.dims)
        found["grad_y"] = found["grad_y"].to(call.grad_y.dtype)
    if wanted.x:
        found["x"] = _curved(call, grad)  # which is symmetric
    return found


def _backward_tangents(call, along):
    terms = []
    if along.grad_y is not None:
        terms.append(REDUCE_BACKWARD(along.grad_y, call.x, call.dims, call.kind, call.correction))
    if along.x is not None:
        terms.append(_curved(call, along.x))
    total = total_of(*terms)
    return torch.zeros_like(call.x) if total is None else total


def _backward_axes(call):
    for place, dim in enumerate(_kept(call.x.ndim, call.dims)):
        yield Axis({"grad_y": place, "x": dim}, (dim,))


REDUCE_BACKWARD = Operator(
    "reduce_backward",
    lambda call: call.x.new_empty(call.x.shape),
    outputs=("grad_x",),
    like="x",
    rows=("grad_y", "x"),
    axes=_backward_axes,
    keeps=("grad_y", "x"),
    gradients=_backward_gradients,
    tangents=_backward_tangents,
)

RECORDS = (TOTAL, REDUCE, REDUCE_BACKWARD)
