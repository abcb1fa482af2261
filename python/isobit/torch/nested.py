# SPDX-License-Identifier: Apache-2.0
"""Nested tensors of the jagged layout: their rows lie one after the other in one tensor."""

import torch


def of_values(record, op, call, rows):
    """What call(values of the tensors of the record's rows, or None) returns, as nested tensors of
    the rows of the first."""
    if not record.rows or record.dims:
        raise NotImplementedError(f"{op}: nested tensors are not supported")
    return of_rows(op, record.rows, call, rows)


def of_rows(op, names, call, rows):
    """The same of tensors with these names. Elements of their rows are the call's to check."""
    x = rows[0]
    for name, tensor in zip(names, rows, strict=True):
        if tensor is not None and tensor.shape[:-1] != x.shape[:-1]:
            its, own = tuple(tensor.shape), tuple(x.shape)
            raise ValueError(f"{op}: {name} has shape {its}; input has shape {own}")
    require_no_holes(op, x)
    results = call(*(None if tensor is None else tensor.values() for tensor in rows))
    if isinstance(results, tuple):
        return tuple(with_parts_of(x, each) for each in results)
    return with_parts_of(x, results)


def require_no_holes(op, x):
    if x.lengths() is not None:
        raise NotImplementedError(f"{op}: a nested tensor has rows that belong to no part of it")


def with_parts_of(x, values):
    """A nested tensor of the structure of x."""
    return torch.nested.nested_tensor_from_jagged(
        values,
        x.offsets(),
        jagged_dim=x._ragged_idx,
        min_seqlen=x._maybe_min_seqlen,
        max_seqlen=x._maybe_max_seqlen,
    )
