# SPDX-License-Identifier: Apache-2.0
"""Group norm in PyTorch: what it means, how a textbook writes it, and PyTorch's own operator."""

import torch
from torch.nn import functional as F


def _of_channels(values, like):
    """One for each channel, to stand beside (batch, channels, ...)."""
    return values.view(1, -1, *(1,) * (like.dim() - 2))


def reference(x, groups, weight=None, bias=None, eps=1e-5):
    """y, mean and 1/sigma of each group in double, by README.md's formula."""
    rows = x.double().reshape(x.shape[0], groups, -1)
    mean = rows.mean(-1, keepdim=True)
    variance = (rows - mean).square().mean(-1, keepdim=True)  # divided by N, not by N - 1
    rstd = 1 / (variance + eps).sqrt()
    y = ((rows - mean) * rstd).reshape(x.shape)
    if weight is not None:
        y = y * _of_channels(weight.double(), x)
    if bias is not None:
        y = y + _of_channels(bias.double(), x)
    return y, mean.squeeze(-1), rstd.squeeze(-1)


def textbook(x, groups, weight=None, bias=None, eps=1e-5):
    """As a textbook writes it, in the type of x: a sweep over memory for every line."""
    rows = x.reshape(x.shape[0], groups, -1)
    mean = rows.mean(-1, keepdim=True)
    variance = rows.var(-1, keepdim=True, correction=0)
    y = ((rows - mean) * torch.rsqrt(variance + eps)).reshape(x.shape)
    if weight is not None:
        y = y * _of_channels(weight, x)
    if bias is not None:
        y = y + _of_channels(bias, x)
    return y


def standard(x, groups, weight=None, bias=None, eps=1e-5):
    """PyTorch's own: one operator, statistics in float for 16-bit types."""
    return F.group_norm(x, groups, weight, bias, eps)
