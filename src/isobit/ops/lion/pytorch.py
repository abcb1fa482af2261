# SPDX-License-Identifier: Apache-2.0
"""A step of Lion in PyTorch: what it means, and as one writes it, with and without new arrays.

All take the parameter, the gradient and its average, and the options of README.md, and give the new
parameter and average.
"""

import torch


def reference(param, grad, exp_avg, **options):
    """In double, rounded once."""
    found = standard(*(each.double() for each in (param, grad, exp_avg)), **options)
    return tuple(each.to(param.dtype) for each in found)


def standard(
    param, grad, exp_avg, *, lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.0, maximize=False
):
    if maximize:
        grad = -grad
    way = torch.sign(beta1 * exp_avg + (1 - beta1) * grad)
    param = param * (1 - lr * weight_decay) - lr * way
    return param, beta2 * exp_avg + (1 - beta2) * grad


def fused(param, grad, exp_avg, *, lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.0):
    """In the places of the parameter and its average."""
    way = exp_avg.lerp(grad, 1 - beta1).sign_()
    param.mul_(1 - lr * weight_decay).add_(way, alpha=-lr)
    return param, exp_avg.lerp_(grad, 1 - beta2)
