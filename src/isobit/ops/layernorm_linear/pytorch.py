# SPDX-License-Identifier: Apache-2.0
"""LayerNorm and the linear layer that it feeds in PyTorch: what they mean, how one writes them, and
as a function with a backward of its own."""

import torch
from torch.nn import functional

from isobit.ops.layernorm import pytorch as norm
from isobit.ops.matmul.pytorch import ACTIVATIONS


def reference(x, norm_weight, norm_bias, weight, bias=None, eps=1e-5, *, activation="none"):
    """In double, rounded once to the type of the weight."""
    y, _, _ = norm.reference(x, norm_weight, norm_bias, eps)
    z = y @ weight.double().T
    z = z if bias is None else z + bias.double()
    return ACTIVATIONS[activation](z).to(weight.dtype)


def standard(x, norm_weight, norm_bias, weight, bias=None, eps=1e-5, *, activation="none"):
    """Two operations, between which the normalised rows are an array that autograd keeps."""
    y = functional.layer_norm(x, x.shape[-1:], norm_weight, norm_bias, eps)
    return ACTIVATIONS[activation](functional.linear(y, weight, bias))


def algebraic(x, norm_weight, norm_bias, weight, bias=None, eps=1e-5, *, activation="none"):
    """The product before the norm: x Wᵀ less the mean times the sums of W's rows. The two are as
    large as the mean and their difference is not, so its digits are lost."""
    folded = weight * norm_weight
    mean = x.mean(-1, keepdim=True)
    rstd = (x.var(-1, keepdim=True, correction=0) + eps).rsqrt()
    z = rstd * (x @ folded.T - mean * folded.sum(1)) + weight @ norm_bias
    return ACTIVATIONS[activation](z if bias is None else z + bias)


class Function(torch.autograd.Function):
    """Keeps x alone of what has its size, and makes the rows again in backward.

    grad_x is a product followed by the norm's gradient, which has three terms: that of grad_y
    itself, less its mean, and less its part along the normalised row.
    """

    @staticmethod
    def forward(ctx, x, norm_weight, norm_bias, weight, bias, eps):
        ctx.save_for_backward(x, norm_weight, norm_bias, weight)
        ctx.eps = eps
        return standard(x, norm_weight, norm_bias, weight, bias, eps)

    @staticmethod
    def backward(ctx, grad_z):
        x, norm_weight, norm_bias, weight = ctx.saved_tensors
        mean = x.mean(-1, keepdim=True)
        rstd = (x.var(-1, keepdim=True, correction=0) + ctx.eps).rsqrt()
        xhat = (x - mean) * rstd
        rows = tuple(range(x.dim() - 1))
        grad_y = grad_z @ weight
        g = grad_y * norm_weight
        grad_x = g - g.mean(-1, keepdim=True) - xhat * (g * xhat).mean(-1, keepdim=True)
        y = xhat * norm_weight + norm_bias
        grad_weight = grad_z.flatten(0, -2).T @ y.flatten(0, -2)
        sums = (grad_y * xhat).sum(rows), grad_y.sum(rows)
        return rstd * grad_x, *sums, grad_weight, grad_z.sum(rows), None
