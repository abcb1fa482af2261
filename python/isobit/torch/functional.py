# SPDX-License-Identifier: Apache-2.0
"""The functions: torch.nn.functional's, and fused forms that it lacks."""

import torch
import torch.nn.functional as F
from torch.overrides import handle_torch_function, has_torch_function_variadic

from isobit.torch import fast, operators  # noqa: F401, operators completes torch.ops.isobit
from isobit.torch.autograd import call, transforms_active
from isobit.torch.norms import ADD_LAYER_NORM, ADD_RMS_NORM, LAYER_NORM, RMS_NORM, Given, Options
from isobit.torch.settings import settings


def _check_types(op, **tensors):
    for name, value in tensors.items():
        if not (value is None or isinstance(value, torch.Tensor)):
            raise TypeError(f"{op}: {name} must be a Tensor; it is {type(value).__name__}")


def _hidden_dims(op, input, normalized_shape):
    if isinstance(normalized_shape, int):
        normalized_shape = (normalized_shape,)
    count = len(normalized_shape)
    if count == 0 or input.shape[-count:] != tuple(normalized_shape):
        raise ValueError(
            f"{op}: normalized_shape is {tuple(normalized_shape)}; "
            f"input has shape {tuple(input.shape)}"
        )
    return count


def _call(norm, options, given):
    if torch.compiler.is_compiling() and not transforms_active():
        if settings.compiled_fuses and not (options.dropout or options.zero_centered):
            return _formula(norm, options, given)
        return norm.forward(given, options, prefix="")
    return call(norm, options, given)


def _formula(norm, options, given):
    total = given.input if given.residual is None else given.input + given.residual
    shape = total.shape[total.dim() - options.hidden_dims :]
    if norm.centred:
        y = F.layer_norm(total, shape, given.weight, given.bias, options.eps)
    else:
        y = F.rms_norm(total, shape, given.weight, options.eps)
    y = y.to(options.out_dtype or total.dtype)
    return (y, total) if norm.adds else y


def default_eps(dtype):
    """What torch.nn.functional.rms_norm takes where none is given."""
    return torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps


def layer_norm(
    input,
    normalized_shape,
    weight=None,
    bias=None,
    eps=1e-5,
    *,
    zero_centered=False,
    out_dtype=None,
):
    """torch.nn.functional.layer_norm, with the same bits wherever it is computed.

    zero_centered: weight is stored less 1. out_dtype: float32, float16 or bfloat16 in place of
    input's.
    """
    if not (zero_centered or out_dtype or torch.compiler.is_compiling()):
        y = fast.layer_norm(normalized_shape, input, weight, bias, eps)
        if y is not None:
            return y
    if has_torch_function_variadic(input, weight, bias):
        return handle_torch_function(
            layer_norm,
            (input, weight, bias),
            *(input, normalized_shape, weight, bias, eps),
            zero_centered=zero_centered,
            out_dtype=out_dtype,
        )
    _check_types("layer_norm", input=input, weight=weight, bias=bias)
    hidden_dims = _hidden_dims("layer_norm", input, normalized_shape)
    options = Options(eps, hidden_dims, zero_centered, out_dtype)
    return _call(LAYER_NORM, options, Given(input, weight, bias))


def rms_norm(
    input, normalized_shape, weight=None, eps=None, *, zero_centered=False, out_dtype=None
):
    """torch.nn.functional.rms_norm, with the same bits wherever it is computed.

    eps: where it is None, the machine epsilon of float64 for float64, of float32 for all others.
    For the rest see layer_norm.
    """
    eps = default_eps(input.dtype) if eps is None else eps
    if not (zero_centered or out_dtype or torch.compiler.is_compiling()):
        y = fast.rms_norm(normalized_shape, input, weight, eps)
        if y is not None:
            return y
    if has_torch_function_variadic(input, weight):
        return handle_torch_function(
            rms_norm,
            (input, weight),
            *(input, normalized_shape, weight, eps),
            zero_centered=zero_centered,
            out_dtype=out_dtype,
        )
    _check_types("rms_norm", input=input, weight=weight)
    hidden_dims = _hidden_dims("rms_norm", input, normalized_shape)
    options = Options(eps, hidden_dims, zero_centered, out_dtype)
    return _call(RMS_NORM, options, Given(input, weight))


def _seed(p, seed):
    if p == 0:
        return None
    if seed is None:  # from PyTorch's generator, so that torch.manual_seed rules it
        return torch.randint(-(1 << 63), (1 << 63) - 1, (), dtype=torch.int64, device="cpu")
    if isinstance(seed, torch.Tensor):
        return seed
    return torch.tensor(seed - (1 << 64) if seed >= 1 << 63 else seed, dtype=torch.int64)


def add_layer_norm(
    x,
    residual,
    normalized_shape,
    weight=None,
    bias=None,
    eps=1e-5,
    *,
    zero_centered=False,
    out_dtype=None,
):
    """(y, sum): sum = x + residual, y = layer_norm(sum), in one pass over memory."""
    return dropout_add_layer_norm(
        *(x, residual, normalized_shape, weight, bias, 0.0, eps),
        zero_centered=zero_centered,
        out_dtype=out_dtype,
    )


def add_rms_norm(
    x, residual, normalized_shape, weight=None, eps=None, *, zero_centered=False, out_dtype=None
):
    """(y, sum): sum = x + residual, y = rms_norm(sum), in one pass over memory."""
    return dropout_add_rms_norm(
        *(x, residual, normalized_shape, weight, 0.0, eps),
        zero_centered=zero_centered,
        out_dtype=out_dtype,
    )


def dropout_add_layer_norm(
    x,
    residual,
    normalized_shape,
    weight=None,
    bias=None,
    p=0.5,
    eps=1e-5,
    *,
    training=True,
    seed=None,
    zero_centered=False,
    out_dtype=None,
):
    """(y, sum): sum = dropout(x, p) + residual, y = layer_norm(sum), in one pass over memory.

    What is dropped depends on the seed, the row and the column alone. seed: an integer, or one
    int64 in a tensor on the CPU; where it is None, PyTorch's generator for the CPU draws one.
    residual may be None.
    """
    if has_torch_function_variadic(x, residual, weight, bias):
        return handle_torch_function(
            dropout_add_layer_norm,
            (x, residual, weight, bias),
            *(x, residual, normalized_shape, weight, bias, p, eps),
            training=training,
            seed=seed,
            zero_centered=zero_centered,
            out_dtype=out_dtype,
        )
    op = "dropout_add_layer_norm" if p else "add_layer_norm"
    _check_types(op, x=x, residual=residual, weight=weight, bias=bias)
    options = Options(
        *(eps, _hidden_dims(op, x, normalized_shape), zero_centered, out_dtype),
        dropout=p if training else 0.0,
    )
    given = Given(x, weight, bias, residual, _seed(options.dropout, seed))
    return _call(ADD_LAYER_NORM, options, given)


def dropout_add_rms_norm(
    x,
    residual,
    normalized_shape,
    weight=None,
    p=0.5,
    eps=None,
    *,
    training=True,
    seed=None,
    zero_centered=False,
    out_dtype=None,
):
    """(y, sum): sum = dropout(x, p) + residual, y = rms_norm(sum); see dropout_add_layer_norm."""
    if has_torch_function_variadic(x, residual, weight):
        return handle_torch_function(
            dropout_add_rms_norm,
            (x, residual, weight),
            *(x, residual, normalized_shape, weight, p, eps),
            training=training,
            seed=seed,
            zero_centered=zero_centered,
            out_dtype=out_dtype,
        )
    op = "dropout_add_rms_norm" if p else "add_rms_norm"
    _check_types(op, x=x, residual=residual, weight=weight)
    eps = default_eps(x.dtype) if eps is None else eps
    options = Options(
        *(eps, _hidden_dims(op, x, normalized_shape), zero_centered, out_dtype),
        dropout=p if training else 0.0,
    )
    given = Given(x, weight, residual=residual, seed=_seed(options.dropout, seed))
    return _call(ADD_RMS_NORM, options, given)


def add(x, residual):
    """x + residual, rounded once."""
    if has_torch_function_variadic(x, residual):
        return handle_torch_function(add, (x, residual), x, residual)
    _check_types("add", x=x, residual=residual)
    return torch.ops.isobit.add(x, residual)


def increment(x):
    """x + 1, rounded once."""
    if has_torch_function_variadic(x):
        return handle_torch_function(increment, (x,), x)
    _check_types("increment", x=x)
    return torch.ops.isobit.increment(x)
