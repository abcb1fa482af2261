# SPDX-License-Identifier: Apache-2.0
"""LayerNorm in PyTorch: what it means, how a textbook writes it, and the fused operator."""

import torch
from torch import nn
from torch.nn import functional as F


def reference(x, weight=None, bias=None, eps=1e-5):
    """y, mean and 1/sigma in double, by README.md's formulas."""
    x = x.double()
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)  # divided by N, not by N - 1
    rstd = 1 / (variance + eps).sqrt()
    y = (x - mean) * rstd
    if weight is not None:
        y = y * weight.double()
    if bias is not None:
        y = y + bias.double()
    return y, mean.squeeze(-1), rstd.squeeze(-1)


def reference_backward(grad_y, x, weight=None, eps=1e-5):
    """grad_x, grad_weight and grad_bias in double, by README.md's formulas.

    grad_x takes means over its row; the gradients of weight and bias are sums over all rows.
    """
    xhat, _, rstd = reference(x, eps=eps)
    grad_y = grad_y.double()
    g = grad_y if weight is None else grad_y * weight.double()
    mean_g = g.mean(-1, keepdim=True)
    mean_gx = (g * xhat).mean(-1, keepdim=True)
    grad_x = rstd.unsqueeze(-1) * (g - mean_g - xhat * mean_gx)
    rows = tuple(range(x.dim() - 1))
    return grad_x, (grad_y * xhat).sum(rows), grad_y.sum(rows)


class Standard(nn.Module):
    """As a textbook writes it, in the type of x: a memory-bound sweep for every line of forward.

    One float near 1e6 names no mean closer than 1/32, so rows far from 0 lose digits here.
    """

    def __init__(self, hidden_size, eps=1e-5, elementwise_affine=True, bias=True):
        super().__init__()
        self.eps = eps
        weight = nn.Parameter(torch.ones(hidden_size)) if elementwise_affine else None
        shift = nn.Parameter(torch.zeros(hidden_size)) if elementwise_affine and bias else None
        self.register_parameter("weight", weight)
        self.register_parameter("bias", shift)

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = x.var(-1, keepdim=True, correction=0)
        y = (x - mean) * torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            y = y * self.weight
        if self.bias is not None:
            y = y + self.bias
        return y


def fused(x, weight=None, bias=None, eps=1e-5):
    """PyTorch's own: one kernel, statistics in float for 16-bit types."""
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def fused_backward(grad_y, x, weight=None, eps=1e-5):
    """grad_x, grad_weight and grad_bias, from statistics as the forward pass saves them."""
    shape = x.shape[-1:]
    if weight is None:  # without one, no gradients of weight and bias would be computed
        weight = x.new_ones(shape)
    bias = torch.zeros_like(weight)
    _, mean, rstd = torch.native_layer_norm(x, shape, weight, bias, eps)
    return torch.ops.aten.native_layer_norm_backward(
        grad_y, x, shape, mean, rstd, weight, bias, [True, True, True]
    )
