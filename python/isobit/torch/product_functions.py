# SPDX-License-Identifier: Apache-2.0
"""The products: torch's and torch.nn.functional.linear, with the same bits wherever they are
computed, and with an activation in the same sweep."""

import torch

from isobit.torch import nested
from isobit.torch.derived import short
from isobit.torch.fast import TENSORS
from isobit.torch.functional import overridable, run
from isobit.torch.products import ACTIVATED_MATMUL, ARITHMETICS, CODE, MATMUL, NONE
from isobit.torch.records import is_autocast

_MOST_DIMS = 8
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_CANONICAL = ARITHMETICS.index("canonical")
_SECOND = {"linear": "weight", "mm": "mat2", "bmm": "mat2"}


def options(op, activation, arithmetic="canonical"):
    """Those of the operators, by their names there."""
    if activation is not None and activation not in CODE:
        allowed = ", ".join(repr(name) for name in CODE if name != "none")
        raise ValueError(f"{op}: activation is {activation!r}; allowed: None, {allowed}")
    if arithmetic not in ARITHMETICS:
        allowed = ", ".join(map(repr, ARITHMETICS))
        raise ValueError(f"{op}: arithmetic is {arithmetic!r}; allowed: {allowed}")
    code = CODE["none" if activation is None else activation]
    return {"activation": code, "out_dtype": None, "arithmetic": ARITHMETICS.index(arithmetic)}


def _tell(op, second, a, b):
    """What a product has refused, in the words of the function that was called."""
    if a.dtype not in _FLOATS:
        allowed = "float32, float16, bfloat16 or float64"
        raise ValueError(f"{op}: input has dtype {a.dtype}; must be {allowed}") from None
    if b.dtype != a.dtype and not is_autocast(a.device):
        raise ValueError(f"{op}: {second} has dtype {b.dtype}; input has {a.dtype}") from None
    if a.shape[-1] != b.shape[-2]:
        rows = b.shape[-2]
        raise ValueError(
            f"{op}: input has {a.shape[-1]} columns; {second} has {rows} rows"
        ) from None


def _multiplied(op, second, a, b, bias, chosen):
    try:
        return _run(a, b, bias, chosen)
    except ValueError:
        _tell(op, second, a, b)
        raise


def _run(a, b, bias, chosen):
    tensors = {"a": a, "b": b, "bias": bias}
    bends = chosen["activation"] != NONE and torch.is_grad_enabled()
    if bends and any(each is not None and each.requires_grad for each in tensors.values()):
        y, _pre = run(ACTIVATED_MATMUL, tensors, **chosen)
        return y
    return run(MATMUL, tensors, **chosen)


def of_rows(op, second, input, b, call):
    """Of a nested tensor, which is its rows."""
    if b.ndim > 2:
        raise ValueError(
            f"{op}: input is nested, {second} has {b.ndim} dimensions; must have 1 or 2"
        )
    if input.layout != torch.jagged:
        raise NotImplementedError(f"{op}: input is nested; must have layout=torch.jagged")
    if input._ragged_idx == input.ndim - 1:
        raise ValueError(f"{op}: rows of input have several lengths; must have one")
    return nested.of_rows(op, ("input",), call, [input])


def _require_widths(input, weight_t, bias):
    """Of linear, in its own words, not in those of the product that it becomes."""
    columns = weight_t.shape[0]
    if input.shape[-1] != columns:
        raise ValueError(f"linear: input has {input.shape[-1]} columns; weight has {columns}")
    if bias is not None and weight_t.ndim == 2 and bias.shape != weight_t.shape[1:]:
        raise ValueError(
            f"linear: bias has shape {tuple(bias.shape)}; must have {tuple(weight_t.shape[1:])}, "
            "since weight has so many rows"
        )


def _product(op, a, b, bias, chosen):
    second = _SECOND.get(op, "other")
    for name, tensor in (("input", a), (second, b)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{op}: {name} must be a Tensor; it is {type(tensor).__name__}")
        if tensor.ndim == 0:
            raise ValueError(f"{op}: {name} has no dimensions; must have 1 or more")
    if not (bias is None or isinstance(bias, torch.Tensor)):
        raise TypeError(f"{op}: bias must be a Tensor; it is {type(bias).__name__}")
    for name, tensor in ((second, b), ("bias", bias)):
        if isinstance(tensor, torch.Tensor) and tensor.is_nested:
            raise NotImplementedError(f"{op}: {name} is nested; input alone may be")
    if a.is_nested:
        return of_rows(op, second, a, b, lambda rows: _product(op, rows, b, bias, chosen))
    if op == "linear":
        _require_widths(a, b, bias)
    if a.ndim == b.ndim == 2:
        return _multiplied(op, second, a, b, bias, chosen)
    row, column = a.ndim == 1, b.ndim == 1
    a, b = a.unsqueeze(0) if row else a, b.unsqueeze(-1) if column else b
    if b.ndim == 2 and a.ndim > 2:  # rows of one product, of which gradients are one product too
        y = _multiplied(op, second, a.flatten(0, -2), b, bias, chosen)
        y = y.view(*a.shape[:-1], b.shape[-1])
    else:
        try:
            batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except RuntimeError:
            raise ValueError(
                f"{op}: the batch of input is {tuple(a.shape[:-2])}, that of {second} "
                f"{tuple(b.shape[:-2])}; they must broadcast"
            ) from None
        a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
        many = len(batch) + 2 > _MOST_DIMS
        if many:
            a, b = a.flatten(0, -3), b.flatten(0, -3)
        y = _multiplied(op, second, a, b, bias, chosen)
        y = y.view(*batch, *y.shape[-2:]) if many else y
    y = y.squeeze(-2) if row else y
    return y.squeeze(-1) if column else y


def _short(rank, a, b, bias=None):
    """The canonical product of matrices, or of as many in two batches; None if the long way must be
    taken."""
    if getattr(a, "ndim", None) == getattr(b, "ndim", None) == rank:
        return short(MATMUL, a, b, bias, NONE, None, _CANONICAL)
    return None


def _short_linear(input, weight, bias):
    if type(input) not in TENSORS or type(weight) not in TENSORS or weight.ndim != 2:
        return None
    if input.ndim == 2:
        return _short(2, input, weight.t(), bias)
    if input.ndim < 2 or input.is_nested or torch.compiler.is_compiling():
        return None
    y = _short(2, input.flatten(0, -2), weight.t(), bias)
    return None if y is None else y.view(*input.shape[:-1], y.shape[-1])


def _require_rank(op, rank, **tensors):
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor) and tensor.ndim != rank:
            raise ValueError(f"{op}: {name} has {tensor.ndim} dimensions; must have {rank}")


@overridable
def matmul(input, other, *, bias=None, activation=None, out_dtype=None, arithmetic="canonical"):
    """torch.matmul, and activation(input @ other + bias) with one rounding. activation: None,
    "relu", "gelu", "gelu_tanh" or "silu". out_dtype: float32 beside 16 bits, or the reverse.

    arithmetic: "canonical", the same bits everywhere, or "tensor", those of the GPU's tensor cores
    or, on the CPU and of bfloat16 alone, of AMX; in gradients too. Other calls with "tensor" fail.
    """
    if activation is None and out_dtype is None and arithmetic == "canonical":
        y = _short(2, input, other, bias)
        if y is not None:
            return y
    chosen = options("matmul", activation, arithmetic) | {"out_dtype": out_dtype}
    return _product("matmul", input, other, bias, chosen)


@overridable
def mm(input, mat2):
    """torch.mm."""
    y = _short(2, input, mat2)
    if y is not None:
        return y
    _require_rank("mm", 2, input=input, mat2=mat2)
    return _product("mm", input, mat2, None, options("mm", None))


@overridable
def bmm(input, mat2):
    """torch.bmm."""
    y = _short(3, input, mat2)
    if y is not None:
        return y
    _require_rank("bmm", 3, input=input, mat2=mat2)
    return _product("bmm", input, mat2, None, options("bmm", None))


@overridable
def linear(input, weight, bias=None, *, activation=None, arithmetic="canonical"):
    """torch.nn.functional.linear, and an activation with one rounding of both. arithmetic: as of
    matmul."""
    if activation is None and arithmetic == "canonical":
        y = _short_linear(input, weight, bias)
        if y is not None:
            return y
    chosen = options("linear", activation, arithmetic)
    if isinstance(weight, torch.Tensor) and weight.ndim == 2:
        weight = weight.t()
    elif isinstance(weight, torch.Tensor) and weight.ndim != 1:
        raise ValueError(f"linear: weight has {weight.ndim} dimensions; must have 1 or 2")
    return _product("linear", input, weight, bias, chosen)
