# SPDX-License-Identifier: Apache-2.0
"""Norms of classes as others write them, for tests of what takes their place."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_calls import draw

import isobit.torch
from isobit.torch import patching

WIDTH = 24
EPS = 1e-3


class Weighted(nn.Module):
    def __init__(self, width=WIDTH, start=1.0):
        super().__init__()
        self.weight = nn.Parameter(draw(width) / 4 + start)
        self.epsilon = EPS


class PromotingRMSNorm(Weighted):
    """Llama's: the weight meets the rounded row."""

    def forward(self, hidden):
        x = hidden.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * x.to(hidden.dtype)


class NarrowingRMSNorm(Weighted):
    """T5's: a 16-bit weight makes the result 16-bit."""

    def forward(self, hidden):
        squares = hidden.float().pow(2).mean(-1, keepdim=True)
        hidden = hidden * torch.rsqrt(squares + self.epsilon)
        if self.weight.dtype in (torch.float16, torch.bfloat16):
            hidden = hidden.to(self.weight.dtype)
        return self.weight * hidden


class CenteredRMSNorm(Weighted):
    """Gemma's: stored less 1, and of the input's type."""

    def __init__(self):
        super().__init__(start=0.0)

    def forward(self, x):
        y = F.rms_norm(x.float(), self.weight.shape, None, self.epsilon)
        return (y * (1.0 + self.weight.float())).type_as(x)


class BiasedNorm(Weighted):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(draw(WIDTH, seed=1) / 4)

    def forward(self, x):
        d = x.float() - x.float().mean(-1, keepdim=True)
        y = d / (d.square().mean(-1, keepdim=True) + self.epsilon).sqrt()
        return (y * self.weight + self.bias).to(x.dtype)


class CenteredLayerNorm(nn.LayerNorm):
    """Nemotron's."""

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight + 1, self.bias, self.eps)


class NamedLayerNorm(nn.LayerNorm):
    """No more than a name."""


class WeightlessNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.eps = EPS

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], None, self.eps)


def made(kind):
    """Of every class here, with weights that are not 1."""
    module = kind(WIDTH) if issubclass(kind, nn.LayerNorm | nn.RMSNorm) else kind()
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.add_(draw(*parameter.shape, seed=5 + i) / 8)
    return module


def is_ours(module):
    return isinstance(module, (isobit.torch.LayerNorm, isobit.torch.RMSNorm)) or isinstance(
        type(module), patching.Patched
    )
