# SPDX-License-Identifier: Apache-2.0
"""What tests of isobit.torch share: the functions beside PyTorch's, and comparisons."""

import torch
import torch.nn.functional as F

import isobit.torch


def torch_add_layer_norm(x, residual, shape, weight=None, bias=None, eps=1e-5):
    total = x + residual
    return F.layer_norm(total, shape, weight, bias, eps), total


def torch_add_rms_norm(x, residual, shape, weight=None, eps=None):
    total = x + residual
    return F.rms_norm(total, shape, weight, eps), total


# name: (ours, PyTorch's, how many inputs of x's shape, whether there is a bias)
FUNCTIONS = {
    "layer_norm": (isobit.torch.layer_norm, F.layer_norm, 1, True),
    "rms_norm": (isobit.torch.rms_norm, F.rms_norm, 1, False),
    "add_layer_norm": (isobit.torch.add_layer_norm, torch_add_layer_norm, 2, True),
    "add_rms_norm": (isobit.torch.add_rms_norm, torch_add_rms_norm, 2, False),
}


def bits(*tensors):
    """Every bit of some tensors, to be compared as a whole."""
    return [bytes(t.detach().contiguous().reshape(-1).view(torch.uint8).tolist()) for t in tensors]


def many(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


def draw(*shape, dtype=torch.float32, seed=0, requires_grad=False):
    generator = torch.Generator().manual_seed(seed + 7 * len(shape) + sum(shape))
    drawn = torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)
    return drawn.requires_grad_(requires_grad)
