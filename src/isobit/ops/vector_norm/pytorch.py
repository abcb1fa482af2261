# SPDX-License-Identifier: Apache-2.0
"""Norms of rows in PyTorch: what they mean, PyTorch's own, and in pieces."""

import torch

ORDERS = {"l2": 2, "l1": 1, "max": float("inf")}


def reference(x, *, order="l2"):
    """In double, rounded once."""
    wide = x.double()
    norm = torch.linalg.vector_norm(wide, ORDERS[order], -1)
    return norm.to(torch.float64 if x.dtype == torch.float64 else torch.float32)


def standard(x, *, order="l2"):
    return torch.linalg.vector_norm(x, ORDERS[order], -1)


def in_pieces(x, *, order="l2", piece=512):
    """The norm of the norms of pieces."""
    norms = [torch.linalg.vector_norm(each, ORDERS[order], -1) for each in x.split(piece, -1)]
    return torch.linalg.vector_norm(torch.stack(norms, -1), ORDERS[order], -1)
