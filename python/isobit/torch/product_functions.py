# SPDX-License-Identifier: Apache-2.0
"""The products: torch's and torch.nn.functional.linear, with the same bits wherever they are
computed, and with an activation in the same sweep."""

import torch

from isobit.torch.functional import overridable, run
from isobit.torch.products import CODE, MATMUL

_MOST_DIMS = 8


def _code(op, activation):
    if activation is not None and activation not in CODE:
        allowed = ", ".join(repr(name) for name in CODE if name != "none")
        raise ValueError(f"{op}: activation is {activation!r}; allowed: None, {allowed}")
    return CODE["none" if activation is None else activation]


def _multiplied(a, b, bias, code, out_dtype):
    tensors = {"a": a, "b": b, "bias": bias}
    return run(MATMUL, tensors, activation=code, out_dtype=out_dtype)


def _product(op, a, b, bias, activation, out_dtype=None):
    code = _code(op, activation)
    for name, tensor in (("input", a), ("other", b)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{op}: {name} must be a Tensor; it is {type(tensor).__name__}")
        if tensor.ndim == 0:
            raise ValueError(f"{op}: {name} has no dimensions; must have 1 or more")
    row, column = a.ndim == 1, b.ndim == 1
    a, b = a.unsqueeze(0) if row else a, b.unsqueeze(-1) if column else b
    if b.ndim == 2 and a.ndim > 2:  # rows of one product, of which gradients are one product too
        y = _multiplied(a.flatten(0, -2), b, bias, code, out_dtype)
        y = y.view(*a.shape[:-1], b.shape[-1])
    else:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
        many = len(batch) + 2 > _MOST_DIMS
        if many:
            a, b = a.flatten(0, -3), b.flatten(0, -3)
        y = _multiplied(a, b, bias, code, out_dtype)
        y = y.view(*batch, *y.shape[-2:]) if many else y
    y = y.squeeze(-2) if row else y
    return y.squeeze(-1) if column else y


def _require_rank(op, rank, **tensors):
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor) and tensor.ndim != rank:
            raise ValueError(f"{op}: {name} has {tensor.ndim} dimensions; must have {rank}")


@overridable
def matmul(input, other, *, bias=None, activation=None, out_dtype=None):
    """torch.matmul, and activation(input @ other + bias) with one rounding. activation: None,
    "relu", "gelu", "gelu_tanh" or "silu". out_dtype: float32 beside 16 bits, or the reverse."""
    return _product("matmul", input, other, bias, activation, out_dtype)


@overridable
def mm(input, mat2):
    """torch.mm."""
    _require_rank("mm", 2, input=input, mat2=mat2)
    return _product("mm", input, mat2, None, None)


@overridable
def bmm(input, mat2):
    """torch.bmm."""
    _require_rank("bmm", 3, input=input, mat2=mat2)
    return _product("bmm", input, mat2, None, None)


@overridable
def linear(input, weight, bias=None, *, activation=None):
    """torch.nn.functional.linear, and an activation with one rounding of both."""
    if isinstance(weight, torch.Tensor) and weight.ndim == 2:
        weight = weight.t()
    elif isinstance(weight, torch.Tensor) and weight.ndim != 1:
        raise ValueError(f"linear: weight has {weight.ndim} dimensions; must have 1 or 2")
    return _product("linear", input, weight, bias, activation)
