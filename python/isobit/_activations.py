# SPDX-License-Identifier: Apache-2.0
"""The activations of isobit.numpy: functions of every element, and gates."""

from isobit import c_abi
from isobit._calls import FLOATS, Call, context


def _function(name, meaning):
    def function(x):
        return _activation(name, name, "x", x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = meaning
    return function


exp = _function("exp", "e to the power of x.")
log = _function("log", "The natural logarithm of x.")
sigmoid = _function("sigmoid", "1 / (1 + exp(-x)).")
silu = _function("silu", "x * sigmoid(x).")
tanh = _function("tanh", "The hyperbolic tangent of x.")


def gelu(x, *, approximate="none"):
    """x times the normal distribution's integral up to x. approximate: "none" or "tanh"."""
    return _activation("gelu", _gelu("gelu", approximate), "x", x)


def swiglu(gate, up):
    """silu(gate) * up, with one rounding of the product."""
    return _activation("swiglu", "silu", "up", up, gate)


def geglu(gate, up, *, approximate="none"):
    """gelu(gate) * up, with one rounding of the product. approximate: "none" or "tanh"."""
    return _activation("geglu", _gelu("geglu", approximate), "up", up, gate)


def _gelu(function, approximate):
    if approximate not in ("none", "tanh"):
        raise ValueError(f"{function}: approximate is {approximate!r}; allowed: 'none', 'tanh'")
    return "gelu" if approximate == "none" else "gelu_tanh"


def _activation(caller, function, name, x, gate=None):
    call = Call(caller, name, x, FLOATS)
    given = {} if gate is None else {"gate": call.like_x("gate", gate)}
    y = call.empty(call.x.shape, call.dtype)
    tensors = {"x": call.tensor(call.x), "y": call.tensor(y)}
    c_abi.call("activation", "fwd", context(), **tensors, function=function, **given)
    return call.result(y)
