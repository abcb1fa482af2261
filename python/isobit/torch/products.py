# SPDX-License-Identifier: Apache-2.0
"""The records of the products, whose derivatives are products."""

import torch

from isobit.torch.activations import ACTIVATION_BACKWARD, CODES, second
from isobit.torch.records import SUM, Axis, Operator, changed, narrow_inputs, total_of

# As isobit_matmul_args numbers them.
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
CODE = {name: code for code, name in enumerate(ACTIVATIONS)}
NONE = CODE["none"]
ARITHMETICS = ("canonical", "tensor")


def times(call, a, b):
    """Their product, in the arithmetic of the call."""
    return MATMUL(a, b, None, NONE, None, call.arithmetic)


def _dtype(call):
    return call.a.dtype if call.out_dtype is None else call.out_dtype


def _result(call):
    if call.a.shape[-1] != call.b.shape[-2]:
        shapes = f"a has shape {tuple(call.a.shape)}, b {tuple(call.b.shape)}"
        raise ValueError(f"matmul: {shapes}; a's columns must be as many as b's rows")
    return call.a.new_empty((*call.a.shape[:-1], call.b.shape[-1]), dtype=_dtype(call))


def _axes(call, results=1):
    rank = call.a.ndim
    for dim in range(rank - 2):
        yield Axis({"a": dim, "b": dim}, (dim,) * results)
    yield Axis({"a": rank - 2}, (rank - 2,) * results)
    columns = {"b": rank - 1}
    if call.bias is not None:
        columns["bias"] = 0
    yield Axis(columns, (rank - 1,) * results)
    if call.activation == NONE:  # a function of a sum is not the sum of a function of its parts
        terms = {"a": rank - 1, "b": rank - 2}
        if call.bias is not None:
            terms["bias"] = SUM
        yield Axis(terms, (SUM,) * results)


def slope(along, pre, activation):
    """activation'(pre) times what comes along, in the type of pre."""
    along = along.to(pre.dtype)
    name = ACTIVATIONS[activation]
    if name == "relu":
        return torch.where(pre <= 0, 0, along)
    return ACTIVATION_BACKWARD(along, pre, CODES[name])


def _bent(call, along):
    """What is multiplied: `along` itself where there is no activation."""
    return along if call.activation == NONE else slope(along, call.pre, call.activation)


def _backward(call, wanted, grad, pre):
    """The gradients of a, b and bias by one call."""
    bias = call.bias.dtype if wanted.bias else None
    arguments = (grad, call.a, call.b, pre, call.activation, wanted.a, wanted.b, bias)
    results = MATMUL_BACKWARD(*arguments, call.arithmetic)
    found = zip(("a", "b", "bias"), results, strict=True)
    return {name: each for name, each in found if getattr(wanted, name)}


def _pre(call):
    """What the activation was applied to, made anew."""
    if call.activation == NONE:
        return None
    return MATMUL(call.a, call.b, call.bias, NONE, call.out_dtype, call.arithmetic)


def _sum_tangents(call, along):
    """Those of what an activation is applied to."""
    total = None
    for term in (
        along.a is not None and times(call, along.a, call.b),
        along.b is not None and times(call, call.a, along.b),
        along.bias is not None and along.bias.to(call.a.dtype).expand(_result(call).shape),
    ):
        if term is not False:
            total = term if total is None else total + term
    return total.to(_dtype(call))


def _tangents(call, along):
    total = _sum_tangents(call, along)
    return total if call.activation == NONE else slope(total, _pre(call), call.activation)


MATMUL = Operator(
    "matmul",
    _result,
    rows=("a", "b"),
    axes=_axes,
    keeps=("a", "b", "bias"),
    gradients=lambda call, wanted, grad: _backward(call, wanted, grad, _pre(call)),
    tangents=_tangents,
    autocast=narrow_inputs("a", "b", "bias"),
)


def _activated_gradients(call, wanted, into_y, into_pre):
    if into_pre is None:
        return _backward(call, wanted, into_y, call.pre)
    total = into_pre
    if into_y is not None:
        total = total + slope(into_y, call.pre, call.activation)
    return _backward(changed(call, activation=NONE), wanted, total, None)


def _activated_tangents(call, along):
    total = _sum_tangents(call, along)
    return slope(total, call.pre, call.activation), total


# With pre, which backward needs: so the product is not made twice.
ACTIVATED_MATMUL = Operator(
    "activated_matmul",
    lambda call: (_result(call), _result(call)),
    outputs=("y", "pre"),
    rows=("a", "b"),
    axes=lambda call: _axes(call, 2),
    keeps=("a", "b", "pre"),
    knows=("bias",),
    gradients=_activated_gradients,
    tangents=_activated_tangents,
    autocast=narrow_inputs("a", "b", "bias"),
)


def _gradient_of(matrix, needed):
    """An empty tensor, as the adapter makes it: one that is transposed where the matrix is."""
    if not needed:
        return matrix.new_empty((0,))
    shape = matrix.shape
    if 0 in shape or 1 in shape[-2:] or not matrix.mT.is_contiguous():
        return matrix.new_empty(shape)
    return matrix.new_empty(matrix.mT.shape).mT


def _gradients_of(call):
    bias = call.b.new_empty(call.b.shape[-1:], dtype=call.bias_dtype or call.b.dtype)
    return (
        _gradient_of(call.a, call.needs_a),
        _gradient_of(call.b, call.needs_b),
        bias if call.bias_dtype is not None else bias.new_empty((0,)),
    )


def _backward_axes(call):
    rank = call.a.ndim
    wanted = (call.needs_a, call.needs_b, call.bias_dtype is not None)

    def axis(of_y, results, **others):
        cut = {"grad_y": of_y, "pre": of_y} if of_y is not None else {}
        if call.pre is None:
            cut.pop("pre", None)
        found = tuple(each if want else None for each, want in zip(results, wanted, strict=True))
        return Axis(cut | others, found)

    for dim in range(rank - 2):
        yield axis(dim, (dim, dim, SUM), a=dim, b=dim)
    yield axis(rank - 2, (rank - 2, SUM, SUM), a=rank - 2)
    yield axis(rank - 1, (SUM, rank - 1, 0), b=rank - 1)
    yield axis(None, (rank - 1, rank - 2, None), a=rank - 1, b=rank - 2)


def _bend(call, along):
    """activation''(pre) times the gradient and what comes along."""
    wide = along * call.grad_y * second(call.pre, CODES[ACTIVATIONS[call.activation]])
    return wide.to(call.pre.dtype)


def _bends(call):
    return ACTIVATIONS[call.activation] not in ("none", "relu")


# With s = grad_y activation'(pre): grad_a = s b', grad_b = a' s, grad_bias the sum of s.
def _backward_gradients(call, wanted, into_a, into_b, into_bias):
    into_a = into_a if call.needs_a else None
    into_b = into_b if call.needs_b else None
    into_bias = into_bias if call.bias_dtype is not None else None
    s = _bent(call, call.grad_y).to(call.a.dtype)
    result = {}
    if wanted.a and into_b is not None:
        result["a"] = times(call, s, into_b.mT)
    if wanted.b and into_a is not None:
        result["b"] = times(call, into_a.mT, s)
    into_s = total_of(
        None if into_a is None else times(call, into_a, call.b),
        None if into_b is None else times(call, call.a, into_b),
        None if into_bias is None else into_bias.to(s.dtype).expand(s.shape),
    )
    if into_s is None:
        return result
    into_s = into_s.to(call.grad_y.dtype)
    if wanted.grad_y:
        result["grad_y"] = _bent(call, into_s)
    if _bends(call) and wanted.pre:
        result["pre"] = _bend(call, into_s)
    return result


def _backward_tangents(call, along):
    s = _bent(call, call.grad_y).to(call.a.dtype)
    along_s = None if along.grad_y is None else _bent(call, along.grad_y)
    if along.pre is not None and _bends(call):
        along_s = total_of(along_s, _bend(call, along.pre))
    along_s = None if along_s is None else along_s.to(s.dtype)
    of_a, of_b, of_bias = (torch.zeros_like(each) for each in _gradients_of(call))
    if call.needs_a:
        of_a = total_of(
            of_a,
            None if along_s is None else times(call, along_s, call.b.mT),
            None if along.b is None else times(call, s, along.b.mT),
        )
    if call.needs_b:
        of_b = total_of(
            of_b,
            None if along_s is None else times(call, call.a.mT, along_s),
            None if along.a is None else times(call, along.a.mT, s),
        )
    if call.bias_dtype is not None and along_s is not None:
        of_bias = of_bias + along_s.flatten(0, -2).sum(0).to(call.bias_dtype)
    return of_a, of_b, of_bias


MATMUL_BACKWARD = Operator(
    "matmul_backward",
    _gradients_of,
    outputs=("grad_a", "grad_b", "grad_bias"),
    like="a",
    rows=("grad_y", "a", "b", "pre"),
    # A sum over all rows is not one for each sample, and what is not wanted has no dimensions.
    together=lambda call: call.bias_dtype is None and call.needs_a and call.needs_b,
    axes=_backward_axes,
    keeps=("grad_y", "a", "b", "pre"),
    gradients=_backward_gradients,
    tangents=_backward_tangents,
)
RECORDS = (MATMUL, ACTIVATED_MATMUL, MATMUL_BACKWARD)
