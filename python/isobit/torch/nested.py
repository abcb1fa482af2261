# SPDX-License-Identifier: Apache-2.0
"""Nested tensors of the jagged layout: their rows lie one after the other in one tensor."""

import torch


def of_values(op, call, x, residual=None):
    """What call(values of x[, values of residual]) returns, as nested tensors of the rows of x."""
    if residual is not None and residual.shape != x.shape:
        its, own = tuple(residual.shape), tuple(x.shape)
        raise ValueError(f"{op}: residual has shape {its}; input has shape {own}")
    if x.lengths() is not None:
        raise NotImplementedError(f"{op}: a nested tensor has rows that belong to no part of it")

    def with_rows_of_x(values):
        return torch.nested.nested_tensor_from_jagged(
            values,
            x.offsets(),
            jagged_dim=x._ragged_idx,
            min_seqlen=x._maybe_min_seqlen,
            max_seqlen=x._maybe_max_seqlen,
        )

    values = (x.values(),) if residual is None else (x.values(), residual.values())
    results = call(*values)
    if isinstance(results, tuple):
        return tuple(map(with_rows_of_x, results))
    return with_rows_of_x(results)
