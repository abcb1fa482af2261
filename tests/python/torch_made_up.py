# SPDX-License-Identifier: Apache-2.0
"""Operators of no adapter, to try records with: their kernels are PyTorch's own operations."""

import torch

from isobit.torch import operators
from isobit.torch.records import SUM, Axis, Operator, narrow_inputs

_library = torch.library.Library("isobit", "FRAGMENT")  # lasts as long as the process


def defined(record, signature, kernel):
    """The record, registered, of an operator with this kernel for the CPU."""
    for prefix in ("", "_"):
        _library.define(prefix + record.name + signature)
        _library.impl(prefix + record.name, kernel, "CPU")
    operators.register(record)
    return record


def _swapped(values, dim0, dim1):
    values = list(values)
    values[dim0], values[dim1] = values[dim1], values[dim0]
    return values


def _transposed_axes(call):
    places = _swapped(range(call.x.ndim), call.dim0, call.dim1)
    for place, dim in enumerate(places):
        yield Axis({"x": dim}, (place,))
    yield Axis({"x": SUM}, (SUM,))


def transpose(x, dim0, dim1, dtype=None):
    return torch.ops.isobit.made_up_transpose(x, dim0, dim1, dtype)


TRANSPOSE = defined(
    Operator(
        "made_up_transpose",
        results=lambda call: call.x.new_empty(
            _swapped(call.x.shape, call.dim0, call.dim1), dtype=call.dtype or call.x.dtype
        ),
        rows=("x",),
        dims=("dim0", "dim1"),
        axes=_transposed_axes,
        knows=("x",),
        gradients=lambda call, _, to: {"x": transpose(to, call.dim0, call.dim1, call.x.dtype)},
        tangents=lambda call, along: transpose(along.x, call.dim0, call.dim1, call.dtype),
    ),
    "(Tensor x, int dim0, int dim1, ScalarType? dtype=None) -> Tensor",
    # a clone, as to() would return the input itself
    lambda x, dim0, dim1, dtype=None: (
        x.transpose(dim0, dim1)
        .clone(memory_format=torch.contiguous_format)
        .to(x.dtype if dtype is None else dtype)
    ),
)


def _product_axes(call):
    rows = call.x.ndim - 1
    for dim in range(rows):
        yield Axis({"x": dim}, (dim,))
    yield Axis({"weight": 1}, (rows,))
    yield Axis({"x": rows, "weight": 0}, (SUM,))


def _in_one(rows):
    return rows.reshape(-1, rows.shape[-1])


def _along_product(call, along):
    terms = [] if along.x is None else [along.x @ call.weight]
    terms += [] if along.weight is None else [call.x @ along.weight]
    return sum(terms)


# (..., k) by (k, n)
PRODUCT = defined(
    Operator(
        "made_up_product",
        results=lambda call: call.x.new_empty((*call.x.shape[:-1], call.weight.shape[1])),
        rows=("x",),
        axes=_product_axes,
        keeps=("x", "weight"),
        gradients=lambda call, wanted, to: {
            "x": to @ call.weight.T if wanted.x else None,
            "weight": _in_one(call.x).T @ _in_one(to) if wanted.weight else None,
        },
        tangents=_along_product,
        autocast=narrow_inputs("x", "weight"),
    ),
    "(Tensor x, Tensor weight) -> Tensor",
    lambda x, weight: x @ weight,
)
