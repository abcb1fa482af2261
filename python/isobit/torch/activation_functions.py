# SPDX-License-Identifier: Apache-2.0
"""The activations: torch.nn.functional's and torch's, and gates, with the same bits wherever they
are computed."""

import torch

from isobit.torch.activations import ACTIVATION, CODES, GATED_ACTIVATION
from isobit.torch.functional import overridable, run, run_as


def _of(name, input, function=None):
    return run_as(function or name, ACTIVATION, {"x": input}, function=CODES[name])


def in_place(function, input):
    """function(input) in the place of input, of which backward keeps a copy."""
    is_kept = torch.is_grad_enabled() and input.requires_grad
    return input.copy_(function(input.clone() if is_kept else input))


def _gelu(op, approximate):
    if approximate not in ("none", "tanh"):
        raise ValueError(f"{op}: approximate is {approximate!r}; allowed: 'none', 'tanh'")
    return "gelu" if approximate == "none" else "gelu_tanh"


@overridable
def exp(input):
    """torch.exp."""
    return _of("exp", input)


@overridable
def log(input):
    """torch.log."""
    return _of("log", input)


@overridable
def sigmoid(input):
    """torch.sigmoid."""
    return _of("sigmoid", input)


@overridable
def tanh(input):
    """torch.tanh."""
    return _of("tanh", input)


@overridable
def gelu(input, *, approximate="none"):
    """torch.nn.functional.gelu. approximate: "none" or "tanh"."""
    return _of(_gelu("gelu", approximate), input, "gelu")


@overridable
def silu(input, inplace=False):
    """torch.nn.functional.silu. inplace: the result takes the place of input."""
    return in_place(silu, input) if inplace else _of("silu", input)


@overridable
def swiglu(gate, up):
    """silu(gate) * up, with one rounding of the product."""
    return run(GATED_ACTIVATION, {"x": up, "gate": gate}, function=CODES["silu"])


@overridable
def geglu(gate, up, *, approximate="none"):
    """gelu(gate) * up, with one rounding of the product. approximate: "none" or "tanh"."""
    function = CODES[_gelu("geglu", approximate)]
    return run(GATED_ACTIVATION, {"x": up, "gate": gate}, function=function)
