# SPDX-License-Identifier: Apache-2.0
"""The cross entropy of a linear layer's results in PyTorch: what it means, PyTorch's functions one
after the other, and in pieces whose logits are made again in backward.

All take rows x, the layer's weight and bias, the targets and weights of classes, and give the loss
of each row.
"""

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

PIECE = 512  # rows


def reference(x, weight, bias, target, class_weight=None, **options):
    """In double."""
    wide = [None if each is None else each.double() for each in (x, weight, bias, class_weight)]
    return standard(*wide[:3], target, wide[3], **options)


def standard(x, weight, bias, target, class_weight=None, **options):
    """All logits stand in memory, their logarithms, and the gradients of both."""
    logits = F.linear(x, weight, bias)
    return F.cross_entropy(logits, target, class_weight, reduction="none", **options)


def pieces(x, weight, bias, target, class_weight=None, **options):
    """Some rows at a time, of which backward computes the logits again."""

    def losses(rows, targets):
        return standard(rows, weight, bias, targets, class_weight, **options)

    cut = zip(x.split(PIECE), target.split(PIECE), strict=True)
    return torch.cat([checkpoint(losses, *piece, use_reentrant=False) for piece in cut])
