# SPDX-License-Identifier: Apache-2.0
"""dropout and Dropout: torch's, with masks that no machine changes and nothing stores."""

import torch
from torch import nn

from isobit.torch.dropping import DROPOUT
from isobit.torch.functional import _seed, overridable, run_as


@overridable
def dropout(input, p=0.5, training=True, inplace=False, *, seed=None):
    """torch.nn.functional.dropout. What is dropped depends on the seed, and on an element's row and
    column alone, as in dropout_add_layer_norm. seed: an integer, or one int64 in CPU memory; None
    draws one from PyTorch's generator."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: p is {p}; allowed: 0 to 1")
    if not isinstance(input, torch.Tensor):
        raise TypeError(f"dropout: input must be a Tensor; it is {type(input).__name__}")
    if not training or p == 0:
        return input  # as PyTorch does
    tensors = {"x": input, "seed": _seed("dropout", p, seed)}
    y = run_as("dropout", DROPOUT, tensors, p=float(p))
    return input.copy_(y) if inplace else y


class Dropout(nn.Dropout):
    """torch.nn.Dropout, with its arguments."""

    def forward(self, input):
        return dropout(input, self.p, self.training, self.inplace)
