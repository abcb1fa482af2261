# SPDX-License-Identifier: Apache-2.0
"""The records of the activations, alone and as gates. Their second derivatives are PyTorch's
operations, and so have derivatives of their own."""

import math

import torch

from isobit.torch.records import Axis, Operator, float32_inputs

# As isobit_activation_forward_args numbers them.
FUNCTIONS = ("exp", "log", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu")
CODES = {name: code for code, name in enumerate(FUNCTIONS)}


# The second derivatives. Factors that grow are cut where the others have long been 0.


def _sigmoid_derivatives(x):
    """The first and the second; 1 - 2 sigmoid(x) is -tanh(x / 2)."""
    first = torch.sigmoid(x) * torch.sigmoid(-x)
    return first, -first * torch.tanh(x / 2)


def _second_gelu(x):
    x = x.clamp(-64, 64)
    return (2 - x * x) * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _second_gelu_tanh(x):
    x = x.clamp(-64, 64)
    root = math.sqrt(8 / math.pi)
    v = root * (x + 0.044715 * x**3)
    slope, bend = root * (1 + 3 * 0.044715 * x * x), root * 6 * 0.044715 * x
    first, second = _sigmoid_derivatives(v)
    return 2 * first * slope + x * (second * slope * slope + first * bend)


def _second_silu(x):
    x = x.clamp(-2048, 2048)
    first, second = _sigmoid_derivatives(x)
    return 2 * first + x * second


def _second_tanh(x):
    return 8 * _sigmoid_derivatives(2 * x)[1]  # tanh(x) is 2 sigmoid(2 x) - 1


_SECOND = (
    torch.exp,
    lambda x: -1 / (x * x),
    lambda x: _sigmoid_derivatives(x)[1],
    _second_tanh,
    _second_gelu,
    _second_gelu_tanh,
    _second_silu,
)


def second(x, function):
    """f''(x)."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return _SECOND[function](wide)


def _axes(call):
    tensors = ("x", "grad_y", "gate")
    for dim in range(call.x.ndim):
        cut = {name: dim for name in tensors if hasattr(call, name)}
        gated_backward = hasattr(call, "gate") and hasattr(call, "grad_y")
        yield Axis(cut, (dim, dim) if gated_backward else (dim,))


def _in_float32(call):
    """Where autocast computes PyTorch's function so: it leaves the others in their inputs' type."""
    return FUNCTIONS[call.function] in ("exp", "log")


def _empty(call):
    return call.x.new_empty(call.x.shape)


def _slope(grad, x, function):
    """grad f'(x)."""
    return ACTIVATION_BACKWARD(grad, x, function)


def _value(x, function):
    return ACTIVATION(x, function)


ACTIVATION = Operator(
    "activation",
    _empty,
    rows=("x",),
    axes=_axes,
    keeps=("x",),
    gradients=lambda call, _wanted, grad: {"x": _slope(grad, call.x, call.function)},
    tangents=lambda call, along: _slope(along.x, call.x, call.function),
    autocast=float32_inputs("x", when=_in_float32),
)


def _backward_gradients(call, _wanted, grad):
    bend = (grad * call.grad_y * second(call.x, call.function)).to(call.x.dtype)
    return {"grad_y": _slope(grad, call.x, call.function), "x": bend}


def _sum(terms):
    first, *others = terms
    return sum(others, first)


def _backward_tangents(call, along):
    terms = []
    if along.grad_y is not None:
        terms.append(_slope(along.grad_y, call.x, call.function))
    if along.x is not None:
        bend = along.x * call.grad_y * second(call.x, call.function)
        terms.append(bend.to(call.x.dtype))
    return _sum(terms)


ACTIVATION_BACKWARD = Operator(
    "activation_backward",
    _empty,
    outputs=("grad_x",),
    rows=("grad_y", "x"),
    axes=_axes,
    keeps=("grad_y", "x"),
    gradients=_backward_gradients,
    tangents=_backward_tangents,
)


def _gated_gradients(call, _wanted, grad):
    grad_x, grad_gate = GATED_ACTIVATION_BACKWARD(grad, call.x, call.gate, call.function)
    return {"x": grad_x, "gate": grad_gate}


def _gated_tangents(call, along):
    terms = []
    if along.x is not None:
        terms.append(GATED_ACTIVATION(along.x, call.gate, call.function))
    if along.gate is not None:
        terms.append(call.x * _slope(along.gate, call.gate, call.function))
    return _sum(terms)


GATED_ACTIVATION = Operator(
    "gated_activation",
    _empty,
    rows=("x", "gate"),
    axes=_axes,
    keeps=("x", "gate"),
    gradients=_gated_gradients,
    tangents=_gated_tangents,
    autocast=float32_inputs("x", "gate", when=_in_float32),
)


# Of grad_x = grad_y f(gate) and grad_gate = grad_y x f'(gate), by what flows into each.
def _gated_backward_gradients(call, _wanted, into_x, into_gate):
    x, gate, grad_y, function = call.x, call.gate, call.grad_y, call.function
    result = {}

    def add(name, term):
        result[name] = term if name not in result else result[name] + term

    if into_x is not None:
        add("grad_y", GATED_ACTIVATION(into_x, gate, function))
        add("gate", into_x * _slope(grad_y, gate, function))
    if into_gate is not None:
        add("grad_y", into_gate * _slope(x, gate, function))
        add("x", into_gate * _slope(grad_y, gate, function))
        add("gate", (into_gate * grad_y * x * second(gate, function)).to(x.dtype))
    return result


def _gated_backward_tangents(call, along):
    x, gate, grad_y, function = call.x, call.gate, call.grad_y, call.function
    of_x, of_gate = [torch.zeros_like(x)], [torch.zeros_like(x)]
    if along.grad_y is not None:
        of_x.append(GATED_ACTIVATION(along.grad_y, gate, function))
        of_gate.append(along.grad_y * _slope(x, gate, function))
    if along.x is not None:
        of_gate.append(along.x * _slope(grad_y, gate, function))
    if along.gate is not None:
        of_x.append(along.gate * _slope(grad_y, gate, function))
        of_gate.append((along.gate * grad_y * x * second(gate, function)).to(x.dtype))
    return _sum(of_x), _sum(of_gate)


GATED_ACTIVATION_BACKWARD = Operator(
    "gated_activation_backward",
    lambda call: (_empty(call), _empty(call)),
    outputs=("grad_x", "grad_gate"),
    rows=("grad_y", "x", "gate"),
    axes=_axes,
    keeps=("grad_y", "x", "gate"),
    gradients=_gated_backward_gradients,
    tangents=_gated_backward_tangents,
)

RECORDS = (ACTIVATION, ACTIVATION_BACKWARD, GATED_ACTIVATION, GATED_ACTIVATION_BACKWARD)
