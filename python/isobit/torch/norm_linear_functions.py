# SPDX-License-Identifier: Apache-2.0
"""A norm and the linear layer that it feeds, as one function; and both layers of a transformer's
MLP behind a norm."""

import torch

from isobit.torch import functional, recomputing
from isobit.torch.activation_functions import geglu, swiglu
from isobit.torch.functional import overridable, run
from isobit.torch.norm_linear import LAYER_NORM_LINEAR, RMS_NORM_LINEAR
from isobit.torch.product_functions import linear, options
from isobit.torch.products import NONE

# The activations of an MLP with a gate: (gate, up) are the halves of the first layer's result.
GATES = {
    "swiglu": swiglu,
    "geglu": geglu,
    "geglu_tanh": lambda gate, up: geglu(gate, up, approximate="tanh"),
}


def _call(op, pair, tensors, normalized_shape, eps, zero_centered, activation, arithmetic):
    chosen = options(op, activation, arithmetic)
    functional.check_tensors(op, **tensors)
    x, weight = tensors["input"], tensors["weight"]
    if not isinstance(weight, torch.Tensor):
        raise TypeError(f"{op}: weight must be a Tensor; it is {type(weight).__name__}")
    if functional.hidden_dims(op, x, normalized_shape) != 1:
        raise ValueError(
            f"{op}: normalized_shape is {normalized_shape}; must be the last dimension alone, the "
            "one that the linear layer multiplies"
        )
    bends = chosen["activation"] != NONE and torch.is_grad_enabled()
    if bends and any(each is not None and each.requires_grad for each in tensors.values()):
        record = pair.activated
    else:
        record = pair.forward
    found = run(
        record,
        tensors,
        eps=eps,
        zero_centered=zero_centered,
        activation=chosen["activation"],
        arithmetic=chosen["arithmetic"],
    )
    return found[0] if record is pair.activated else found


@overridable
def layer_norm_linear(
    input,
    normalized_shape,
    norm_weight,
    norm_bias,
    weight,
    bias=None,
    eps=1e-5,
    *,
    activation=None,
    residual=None,
    zero_centered=False,
    arithmetic="canonical",
):
    """activation(linear(layer_norm(input, normalized_shape, norm_weight, norm_bias, eps), weight,
    bias)) + residual, with the bits of one after the other; the normalised rows are never stored,
    nor kept for backward. The norm's result has the dtype of weight.

    activation: None, "relu", "gelu", "gelu_tanh" or "silu". residual: like the result, added before
    it is rounded; under autocast it is rounded first. zero_centered: norm_weight is stored less 1.
    arithmetic: as of matmul.
    """
    tensors = {"input": input, "norm_weight": norm_weight, "norm_bias": norm_bias}
    tensors |= {"weight": weight, "bias": bias, "residual": residual}
    return _call(
        *("layer_norm_linear", LAYER_NORM_LINEAR, tensors, normalized_shape, eps),
        *(zero_centered, activation, arithmetic),
    )


@overridable
def rms_norm_linear(
    input,
    normalized_shape,
    norm_weight,
    weight,
    bias=None,
    eps=None,
    *,
    activation=None,
    residual=None,
    zero_centered=False,
    arithmetic="canonical",
):
    """activation(linear(rms_norm(input, normalized_shape, norm_weight, eps), weight, bias)) +
    residual; see layer_norm_linear, and of eps rms_norm."""
    tensors = {"input": input, "norm_weight": norm_weight}
    tensors |= {"weight": weight, "bias": bias, "residual": residual}
    return _call(
        *("rms_norm_linear", RMS_NORM_LINEAR, tensors, normalized_shape),
        *(functional.known_eps(eps, input), zero_centered, activation, arithmetic),
    )


def _mlp(op, first, fc2_weight, fc2_bias, activation, residual, recompute):
    """first(activation): norm and first layer."""
    gate = GATES.get(activation)
    if gate is None:
        options(op, activation)

    def hidden():
        if gate is None:
            return first(activation)
        return gate(*first(None).chunk(2, dim=-1))

    def whole():
        return linear(hidden(), fc2_weight, fc2_bias)

    y = recomputing.call(recompute, whole)
    return y if residual is None else functional.add(y, residual.to(y.dtype))


@overridable
def layer_norm_mlp(
    input,
    normalized_shape,
    norm_weight,
    norm_bias,
    fc1_weight,
    fc1_bias,
    fc2_weight,
    fc2_bias,
    eps=1e-5,
    *,
    activation="gelu",
    residual=None,
    zero_centered=False,
    recompute=False,
):
    """linear(activation(linear(layer_norm(input), fc1_weight, fc1_bias)), fc2_weight, fc2_bias) +
    residual.

    activation: as of layer_norm_linear, or "swiglu", "geglu" or "geglu_tanh", of which fc1_weight
    has the rows of the gate and then as many others. residual: like the result; it takes its type.
    recompute: backward computes both layers again, with the same bits, and of what lies between
    input and result nothing is kept.
    """

    def first(bent):
        return layer_norm_linear(
            *(input, normalized_shape, norm_weight, norm_bias, fc1_weight, fc1_bias, eps),
            activation=bent,
            zero_centered=zero_centered,
        )

    return _mlp("layer_norm_mlp", first, fc2_weight, fc2_bias, activation, residual, recompute)


@overridable
def rms_norm_mlp(
    input,
    normalized_shape,
    norm_weight,
    fc1_weight,
    fc1_bias,
    fc2_weight,
    fc2_bias,
    eps=None,
    *,
    activation="swiglu",
    residual=None,
    zero_centered=False,
    recompute=False,
):
    """The same behind rms_norm; see layer_norm_mlp."""

    def first(bent):
        return rms_norm_linear(
            *(input, normalized_shape, norm_weight, fc1_weight, fc1_bias, eps),
            activation=bent,
            zero_centered=zero_centered,
        )

    return _mlp("rms_norm_mlp", first, fc2_weight, fc2_bias, activation, residual, recompute)
