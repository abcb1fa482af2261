# SPDX-License-Identifier: Apache-2.0
"""Cross entropy of rows in PyTorch: what it means, PyTorch's own, as a textbook writes it, and in
pieces with a running largest element, which need no array as large as the logits.

All take logits x, whose classes are the last dimension, the targets, weights of classes,
ignore_index, label_smoothing and z_loss, and give the loss of each row.
"""

import math

import torch
import torch.nn.functional as F

PIECE = 1024  # classes


def _of_targets(x, target, weight, ignore_index):
    """Where a row counts, the class to look up there, and the weight of the row."""
    there = target != ignore_index
    at = target.masked_fill(~there, 0)
    own = torch.ones(target.shape, dtype=x.dtype) if weight is None else weight.to(x.dtype)[at]
    return there, at, own


def _losses(x, target, lse, weight, ignore_index, label_smoothing, z_loss):
    """From the logsumexp of each row."""
    there, at, own = _of_targets(x, target, weight, ignore_index)
    of_target = lse - x.gather(-1, at.unsqueeze(-1)).squeeze(-1)
    loss = own * ((1 - label_smoothing) * of_target + z_loss * lse.square())
    if label_smoothing != 0:
        of_class = lse.unsqueeze(-1) - x
        if weight is not None:
            of_class = of_class * weight.to(x.dtype)
        loss = loss + label_smoothing / x.shape[-1] * of_class.sum(-1)
    return loss.masked_fill(~there, 0)


def reference(x, target, weight=None, *, ignore_index=-100, label_smoothing=0.0, z_loss=0.0):
    """In double, by README.md's formula."""
    x = x.double()
    return _losses(x, target, x.logsumexp(-1), weight, ignore_index, label_smoothing, z_loss)


def standard(x, target, weight=None, *, ignore_index=-100, label_smoothing=0.0, z_loss=0.0):
    """PyTorch's own; its logarithms of all probabilities are as large as x."""
    options = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    flat = x.reshape(-1, x.shape[-1]), target.reshape(-1)
    loss = F.cross_entropy(*flat, weight, reduction="none", **options).view(target.shape)
    if z_loss == 0:
        return loss
    there, _, own = _of_targets(x, target, weight, ignore_index)
    return loss + (z_loss * own * x.logsumexp(-1).square()).masked_fill(~there, 0)


def textbook(x, target, weight=None, *, ignore_index=-100, label_smoothing=0.0, z_loss=0.0):
    """Less the largest, since e^x of a large x is beyond its type."""
    most = x.detach().amax(-1, keepdim=True)
    lse = (most + (x - most).exp().sum(-1, keepdim=True).log()).squeeze(-1)
    return _losses(x, target, lse, weight, ignore_index, label_smoothing, z_loss)


def online(x, target, weight=None, *, ignore_index=-100, label_smoothing=0.0, z_loss=0.0):
    """A row in pieces, each read once for the sum: where one has a larger element than all before,
    the sum so far is brought to it. In float beside 16 bits."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    total = x.new_zeros((*x.shape[:-1], 1))
    most = torch.full_like(total, -math.inf)
    for piece in x.split(PIECE, -1):
        above = torch.maximum(most, piece.detach().amax(-1, keepdim=True))
        base = above.masked_fill(above == -math.inf, 0)  # no element is there yet
        total = total * (most - base).exp() + (piece - base).exp().sum(-1, keepdim=True)
        most = above
    lse = (most + total.log()).squeeze(-1)
    return _losses(x, target, lse, weight, ignore_index, label_smoothing, z_loss)
