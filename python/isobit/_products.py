# SPDX-License-Identifier: Apache-2.0
"""The products of isobit.numpy."""

import numpy as np

from isobit import c_abi

_FLOATS = ("float32", "float16", "bfloat16", "float64")
_OF_Y = {
    "float32": ("float32", "float16", "bfloat16"),
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
    "float64": ("float64",),
}
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")


def matmul(a, b, *, bias=None, activation=None, out_dtype=None):
    """activation(a @ b + bias), rounded once; batches broadcast as numpy.matmul's. Arrays of any
    strides are read where they lie. activation: None, "relu", "gelu", "gelu_tanh" or "silu".
    out_dtype: the type of the result, unless given that of a."""
    return _product("matmul", a, b, bias, activation, out_dtype)


def linear(input, weight, bias=None, *, activation=None):
    """activation(input @ weight.T + bias), rounded once."""
    from isobit import numpy  # which imports this file

    weight = numpy._array("linear", "weight", weight, _FLOATS)
    if weight.ndim != 2:
        raise ValueError(f"linear: weight has {weight.ndim} dimensions; must have 2")
    return _product("linear", input, weight.T, bias, activation, None)


def _product(function, a, b, bias, activation, out_dtype):
    from isobit import numpy

    kind = "none" if activation is None else activation
    if kind not in ACTIVATIONS:
        allowed = ", ".join(map(repr, (None, *ACTIVATIONS[1:])))
        raise ValueError(f"{function}: activation is {activation!r}; allowed: {allowed}")
    name_a, name_b = ("input", "weight") if function == "linear" else ("a", "b")
    call = numpy._Call(function, name_a, a, _FLOATS)
    a, b = call.x, numpy._array(function, name_b, b, (call.dtype,), call.like)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"{function}: {name_a} or {name_b} has no dimensions; must have 1 or more")
    row, column = a.ndim == 1, b.ndim == 1
    a, b = a[np.newaxis] if row else a, b[:, np.newaxis] if column else b
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"{function}: {name_a} has {a.shape[-1]} columns; {name_b} has {b.shape[-2]} "
            f"{'columns' if function == 'linear' else 'rows'}"
        )
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(
            f"{function}: batches have shapes {a.shape[:-2]} and {b.shape[:-2]}, which do not "
            "broadcast"
        ) from None
    if len(batch) + 2 > c_abi.MAX_RANK:
        raise ValueError(
            f"{function}: the result has {len(batch) + 2} dimensions; allowed: {c_abi.MAX_RANK}"
        )
    of_y = _OF_Y[call.dtype]
    dtype = call.dtype if out_dtype is None else call.named("out_dtype", out_dtype, of_y)
    tensors = {
        "a": numpy._strided(np.broadcast_to(a, (*batch, *a.shape[-2:]))),
        "b": numpy._strided(np.broadcast_to(b, (*batch, *b.shape[-2:]))),
    }
    if bias is not None:
        of_bias = tuple(dict.fromkeys((call.dtype, "float32")))
        of_bias = ("float64",) if call.dtype == "float64" else of_bias
        bias = numpy._array(function, "bias", bias, of_bias, call.like)
        if bias.shape != b.shape[-1:]:
            raise ValueError(f"{function}: bias has shape {bias.shape}; must be {b.shape[-1:]}")
        tensors["bias"] = numpy._strided(bias)
    y = call.empty((*batch, a.shape[-2], b.shape[-1]), dtype)
    tensors["y"] = numpy._strided(y)
    c_abi.call("matmul", "fwd", numpy._context, **tensors, activation=kind)
    y = y[..., 0, :] if row else y
    return call.result(y[..., 0] if column else y)
