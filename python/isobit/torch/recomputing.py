# SPDX-License-Identifier: Apache-2.0
"""What `checkpoint=True` of a module does: for backward it keeps its inputs alone."""

import torch
from torch.utils.checkpoint import checkpoint as recomputed


def call(checkpoint, function, *given, **more):
    """function(*given, **more), which backward computes again where checkpoint says so: with the
    same bits, since operators have no others."""
    if checkpoint and torch.is_grad_enabled():
        return recomputed(function, *given, use_reentrant=False, **more)
    return function(*given, **more)
