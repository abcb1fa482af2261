# SPDX-License-Identifier: Apache-2.0
"""The record of matmul, whose derivatives are products. The gradient of a bias is one too: of ones
and the gradient."""

import torch

from isobit.torch.activations import ACTIVATION_BACKWARD, CODES
from isobit.torch.records import SUM, Axis, Operator, narrow_inputs

# As isobit_matmul_args numbers them.
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
CODE = {name: code for code, name in enumerate(ACTIVATIONS)}


def _dtype(call):
    return call.a.dtype if call.out_dtype is None else call.out_dtype


def _result(call):
    return call.a.new_empty((*call.a.shape[:-1], call.b.shape[-1]), dtype=_dtype(call))


def _axes(call):
    rank = call.a.ndim
    for dim in range(rank - 2):
        yield Axis({"a": dim, "b": dim}, (dim,))
    yield Axis({"a": rank - 2}, (rank - 2,))
    columns = {"b": rank - 1}
    if call.bias is not None:
        columns["bias"] = 0
    yield Axis(columns, (rank - 1,))
    if call.bias is None and call.activation == CODE["none"]:
        yield Axis({"a": rank - 1, "b": rank - 2}, (SUM,))


def _slope(call, along):
    """activation'(pre) times what comes along, in the type of a."""
    if call.activation != CODE["none"]:
        pre = MATMUL.operator(call.a, call.b, call.bias, CODE["none"], call.out_dtype)
        name = ACTIVATIONS[call.activation]
        if name == "relu":
            along = torch.where(pre > 0, along, 0)
        else:
            along = ACTIVATION_BACKWARD.operator(along.to(pre.dtype), pre, CODES[name])
    return along.to(call.a.dtype)


def _gradients(call, wanted, grad):
    grad = _slope(call, grad)
    result = {}
    if wanted.a:
        result["a"] = MATMUL.operator(grad, call.b.mT)
    if wanted.b:
        result["b"] = MATMUL.operator(call.a.mT, grad)
    if wanted.bias:
        rows = grad.flatten(0, -2)
        ones = rows.new_ones((1, rows.shape[0]))
        wide = None if call.bias.dtype == rows.dtype else call.bias.dtype
        result["bias"] = MATMUL.operator(ones, rows, None, CODE["none"], wide).squeeze(0)
    return result


def _tangents(call, along):
    total = None
    for term in (
        along.a is not None and MATMUL.operator(along.a, call.b),
        along.b is not None and MATMUL.operator(call.a, along.b),
        along.bias is not None and along.bias.to(call.a.dtype).expand(_result(call).shape),
    ):
        if term is not False:
            total = term if total is None else total + term
    return _slope(call, total).to(_dtype(call))


MATMUL = Operator(
    "matmul",
    _result,
    rows=("a", "b"),
    axes=_axes,
    keeps=("a", "b", "bias"),
    gradients=_gradients,
    tangents=_tangents,
    autocast=narrow_inputs("a", "b", "bias"),
)
RECORDS = (MATMUL,)
