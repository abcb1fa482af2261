# SPDX-License-Identifier: Apache-2.0
"""Batch norm in PyTorch: what it means, how a textbook writes it, and PyTorch's own operator."""

import torch
from torch.nn import functional as F


def _of_channels(values, like):
    """One for each channel, to stand beside (batch, channels, ...)."""
    return values.view(1, -1, *(1,) * (like.dim() - 2))


def reference(x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """y and what becomes of the running mean and variance, in double, by README.md's formulas."""
    rows = x.double().transpose(0, 1).flatten(1)
    own_mean, own_var = mean, var
    if training:
        own_mean = rows.mean(1)
        own_var = (rows - own_mean[:, None]).square().mean(1)  # divided by N, not by N - 1
        sample = own_var * (rows.shape[1] / (rows.shape[1] - 1))
        mean = (1 - momentum) * mean.double() + momentum * own_mean
        var = (1 - momentum) * var.double() + momentum * sample
    rstd = 1 / (own_var.double() + eps).sqrt()
    y = (x.double() - _of_channels(own_mean.double(), x)) * _of_channels(rstd, x)
    if weight is not None:
        y = y * _of_channels(weight.double(), x)
    if bias is not None:
        y = y + _of_channels(bias.double(), x)
    return y, mean, var


def textbook(x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """As a textbook writes it, in the type of x: a sweep over memory for every line."""
    dims = [dim for dim in range(x.dim()) if dim != 1]
    own_mean, own_var = mean, var
    if training:
        own_mean, own_var = x.mean(dims), x.var(dims, correction=0)
        mean = torch.lerp(mean, own_mean, momentum)
        var = torch.lerp(var, x.var(dims, correction=1), momentum)
    y = (x - _of_channels(own_mean, x)) * _of_channels(torch.rsqrt(own_var + eps), x)
    if weight is not None:
        y = y * _of_channels(weight, x)
    if bias is not None:
        y = y + _of_channels(bias, x)
    return y, mean, var


def standard(x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """PyTorch's own, on copies of the running statistics, which it changes."""
    mean, var = mean.clone(), var.clone()
    return F.batch_norm(x, mean, var, weight, bias, training, momentum, eps), mean, var
