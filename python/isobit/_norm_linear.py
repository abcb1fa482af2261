# SPDX-License-Identifier: Apache-2.0
"""A norm and the linear layer that it feeds, of isobit.numpy."""

from isobit import _arrays, c_abi
from isobit._calls import context
from isobit._norms import LayerNorm, RMSNorm
from isobit._products import chosen


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
    """activation(layer_norm(input) @ weight.T + bias) + residual, whose normalised rows have the
    dtype of weight and are never stored. activation and arithmetic: as of matmul."""
    return _call(
        *("layer_norm_linear", LayerNorm, input, normalized_shape),
        {"norm_weight": norm_weight, "norm_bias": norm_bias},
        *(weight, bias, residual, eps, zero_centered, activation, arithmetic),
    )


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
    """The same of rms_norm."""
    return _call(
        *("rms_norm_linear", RMSNorm, input, normalized_shape),
        {"norm_weight": norm_weight},
        *(weight, bias, residual, eps, zero_centered, activation, arithmetic),
    )


def _call(
    function,
    norm,
    input,
    normalized_shape,
    norm_weights,
    weight,
    bias,
    residual,
    eps,
    zero_centered,
    activation,
    arithmetic,
):
    options = chosen(function, activation, arithmetic)
    call = norm(function, "input", input, normalized_shape, eps, zero_centered)
    if call.row_dims != 1:
        raise ValueError(
            f"{function}: normalized_shape is {normalized_shape}; must be the last dimension alone"
        )
    weight = _arrays.checked(function, "weight", weight, call.of_y, call.like)
    if weight.ndim != 2 or weight.shape[1:] != call.row:
        raise ValueError(
            f"{function}: weight has shape {weight.shape}; must be (features, {call.row[0]})"
        )
    dtype = _arrays.NAMES[weight.dtype]
    shape, like = (*call.x.shape[:-1], weight.shape[0]), ("weight", dtype)
    tensors = {name: call.per_column(name, each) for name, each in norm_weights.items()}
    tensors["weight"] = _arrays.strided(weight)
    if bias is not None:
        allowed = tuple(dict.fromkeys((dtype, "float64" if dtype == "float64" else "float32")))
        bias = _arrays.checked(function, "bias", bias, allowed, like)
        if bias.shape != shape[-1:]:
            raise ValueError(f"{function}: bias has shape {bias.shape}; must be {shape[-1:]}")
        tensors["bias"] = _arrays.strided(bias)
    if residual is not None:
        tensors["residual"] = call.input("residual", residual, (dtype,), like, shape, "must be")
    z = call.empty(shape, dtype)
    c_abi.call(
        *(f"{norm.op}_linear", "fwd", context()),
        **{"x": call.tensor(call.x), "z": call.tensor(z), **tensors, **call.options, **options},
    )
    return call.result(z)
