# SPDX-License-Identifier: Apache-2.0
"""Puts isobit.torch's causal convolutions in the place of the functions by which transformers'
state-space models convolve: these take the weight of a Conv1d, and never call it."""

import functools
import inspect
import sys

import torch

from isobit.torch import shared_functions
from isobit.torch.causal_convolutions import ACTIVATIONS, causal_conv1d, causal_conv1d_update
from isobit.torch.probing import DEVICES, DTYPES

# What such functions may be given beside a signal, where packages compute them; transformers hand
# on much else that none of them looks at.
_FURTHER = (
    *("seq_idx", "cu_seqlens", "initial_states", "return_final_states", "final_states_out"),
    *("cache_seqlens", "conv_state_indices"),
)


def _computes(hidden_states, weight, activation, further):
    return (
        activation in ACTIVATIONS
        and all(further.get(name) is None or further[name] is False for name in _FURTHER)
        and hidden_states.dtype in DTYPES
        and weight.dtype in DTYPES
        and hidden_states.device.type in DEVICES
    )


# The arguments have the names that transformers give them.
def _whole(original):
    def causal_conv1d_fn(hidden_states, weight, bias=None, activation=None, **further):
        if not _computes(hidden_states, weight, activation, further):
            return original(hidden_states, weight, bias, activation=activation, **further)
        x = hidden_states.to(weight.dtype)
        return causal_conv1d(x, weight, bias, activation=activation).to(hidden_states.dtype)

    return causal_conv1d_fn


def _next(original):
    def causal_conv1d_update_(
        hidden_states, conv_state, weight, bias=None, activation=None, **further
    ):
        if not _computes(hidden_states, weight, activation, further):
            more = {"activation": activation} | further
            return original(hidden_states, conv_state, weight, bias, **more)
        state = conv_state.to(weight.dtype)
        x = hidden_states.to(weight.dtype)
        y = causal_conv1d_update(x, state, weight, bias, activation)
        if state is not conv_state:
            conv_state.copy_(state)
        return y.to(hidden_states.dtype)

    return causal_conv1d_update_


_MADE = {"causal_conv1d_fn": _whole, "causal_conv1d_update": _next}
OURS = {"causal_conv1d_fn": causal_conv1d, "causal_conv1d_update": causal_conv1d_update}


def exchange(model):
    """Exchanges the functions of the Python modules that the model's classes come from, for every
    model of these classes. Returns ({name: ours}, why others are left alone, what undoes it)."""
    found, refused, made = {}, {}, []
    for source in shared_functions.modules_of(model):
        for name, make in _MADE.items():
            if getattr(sys.modules.get(source), name, None) is OURS[name]:
                continue
            difference = functools.partial(_difference, name)
            exchange, reason = shared_functions.exchange(source, name, make, difference)
            if reason:
                refused[f"{source}.{name}"] = reason
            elif exchange:
                found[f"{source}.{name}"] = OURS[name].__name__
                made.append(exchange)
    return found, refused, made


def _results(name, function, activation):
    """Of a few numbers, by the names that models may give them: what takes our place would not know
    others."""
    made = torch.Generator().manual_seed(0)
    shapes = {"hidden_states": (2, 4, 6), "weight": (4, 3), "bias": (4,), "conv_state": (2, 4, 5)}
    given = {each: torch.randn(*shape, generator=made) for each, shape in shapes.items()}
    if name == "causal_conv1d_fn":
        del given["conv_state"]
        return (function(**given, activation=activation),)
    return function(**given, activation=activation), given["conv_state"]


@torch.no_grad()
def _difference(name, original):
    """Why it is not what Isobit computes; empty where it is."""
    # What transformers wrap around theirs warns of packages that are missing.
    theirs = inspect.unwrap(original)
    for activation in (None, "silu"):
        try:
            found = _results(name, theirs, activation)
        except Exception as error:
            return f"cannot be called with a signal and weights: {type(error).__name__}"
        expected = _results(name, _MADE[name](original), activation)
        if not all(
            isinstance(a, torch.Tensor) and a.shape == b.shape and torch.allclose(a, b, atol=1e-5)
            for a, b in zip(found, expected, strict=True)
        ):
            return "computes something else than causal_conv1d"
    return ""
