# SPDX-License-Identifier: Apache-2.0
"""RMSNorm in PyTorch: what it means, PyTorch's own, and a function with its own backward."""

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional


def reference(x, weight=None, eps=1e-5):
    """y and 1/root mean square in double, by README.md's formulas."""
    x = x.double()
    rstd = 1 / (x.square().mean(-1, keepdim=True) + eps).sqrt()
    y = x * rstd
    if weight is not None:
        y = y * weight.double()
    return y, rstd.squeeze(-1)


def reference_backward(grad_y, x, weight=None, eps=1e-5):
    """grad_x and grad_weight in double, by README.md's formulas.

    grad_x takes a mean over its row; the gradient of the weight is a sum over all rows.
    """
    xhat, rstd = reference(x, eps=eps)
    grad_y = grad_y.double()
    g = grad_y if weight is None else grad_y * weight.double()
    grad_x = rstd.unsqueeze(-1) * (g - xhat * (g * xhat).mean(-1, keepdim=True))
    return grad_x, (grad_y * xhat).sum(tuple(range(x.dim() - 1)))


def standard(x, weight=None, eps=1e-5):
    """PyTorch's own operator, which squares 16-bit types in float."""
    return functional.rms_norm(x, x.shape[-1:], weight, eps)


class Function(torch.autograd.Function):
    """Keeps x and one number a row, from which backward makes the normalised row again.

    grad_x is g less its part along the normalised row; it has no mean to lose.
    """

    @staticmethod
    def forward(ctx, x, weight, eps):
        wide = x if x.dtype == torch.float64 else x.float()
        rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, rstd)
        y = wide * rstd
        return (y if weight is None else y * weight).to(x.dtype)

    @staticmethod
    @once_differentiable  # what depends on x in the number a row is not kept
    def backward(ctx, grad_y):
        x, weight, rstd = ctx.saved_tensors
        xhat, grad_y = x * rstd, grad_y.to(rstd.dtype)
        g = grad_y if weight is None else grad_y * weight
        grad_x = rstd * (g - xhat * (g * xhat).mean(-1, keepdim=True))
        grad_weight = None
        if weight is not None:
            rows = tuple(range(x.dim() - 1))
            grad_weight = (grad_y * xhat).sum(rows).to(weight.dtype)
        return grad_x.to(x.dtype), grad_weight, None
