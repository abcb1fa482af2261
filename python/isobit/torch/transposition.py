# SPDX-License-Identifier: Apache-2.0
"""The record of transpose, whose derivatives are itself."""

from isobit import _arguments
from isobit.torch.records import SUM, Axis, Operator


def _exchanged(call, values):
    """A value for each dimension of x, as the dimensions of the result have them."""
    values = list(values)
    dim0, dim1 = (
        _arguments.dim("transpose", name, getattr(call, name), len(values))
        for name in ("dim0", "dim1")
    )
    if values:
        values[dim0], values[dim1] = values[dim1], values[dim0]
    return values


def _result(call):
    shape = _exchanged(call, call.x.shape)
    return call.x.new_empty(shape, dtype=call.x.dtype if call.dtype is None else call.dtype)


def _axes(call):
    for place, dim in enumerate(_exchanged(call, range(call.x.ndim))):
        yield Axis({"x": dim}, (place,))
    if call.dtype is None:  # the sum of rounded parts is not the rounded sum
        yield Axis({"x": SUM}, (SUM,))


def _gradient(call, _wanted, grad):
    dtype = None if grad.dtype == call.x.dtype else call.x.dtype
    return {"x": TRANSPOSE(grad, call.dim0, call.dim1, dtype)}


TRANSPOSE = Operator(
    "transpose",
    _result,
    rows=("x",),
    dims=("dim0", "dim1"),
    together=lambda call: call.x.dim() > 1,  # of single numbers there is no dimension to exchange
    axes=_axes,
    knows=("x",),
    gradients=_gradient,
    tangents=lambda call, along: TRANSPOSE(along.x, call.dim0, call.dim1, call.dtype),
)
RECORDS = (TRANSPOSE,)
