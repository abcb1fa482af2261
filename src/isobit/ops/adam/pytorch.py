# SPDX-License-Identifier: Apache-2.0
"""A step of Adam in PyTorch: what it means, PyTorch's own in one pass, and as one writes it.

All take the parameter, the gradient and the states, the number of the step and the options of
README.md, and give the new parameter, exp_avg, exp_avg_sq and, with AMSGrad, max_exp_avg_sq.
"""

import torch


def reference(param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq=None, **options):
    """In double, rounded once."""
    given = (param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq)
    found = standard(*(None if each is None else each.double() for each in given), **options)
    return tuple(each.to(param.dtype) for each in found)


def standard(
    param,
    grad,
    exp_avg,
    exp_avg_sq,
    max_exp_avg_sq=None,
    *,
    step,
    lr=1e-3,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    weight_decay=0.0,
    decoupled=False,
    maximize=False,
):
    if maximize:
        grad = -grad
    if decoupled:
        param = param * (1 - lr * weight_decay)
    else:
        grad = grad + weight_decay * param
    exp_avg = beta1 * exp_avg + (1 - beta1) * grad
    exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * grad.square()
    square = exp_avg_sq
    if max_exp_avg_sq is not None:
        square = max_exp_avg_sq = torch.maximum(max_exp_avg_sq, exp_avg_sq)
    scale = square.sqrt() / (1 - beta2**step) ** 0.5 + eps
    param = param - lr / (1 - beta1**step) * exp_avg / scale
    results = (param, exp_avg, exp_avg_sq)
    return results if max_exp_avg_sq is None else (*results, max_exp_avg_sq)


def fused(
    param,
    grad,
    exp_avg,
    exp_avg_sq,
    max_exp_avg_sq=None,
    *,
    step,
    decoupled=False,
    beta1=0.9,
    beta2=0.999,
    **options,
):
    """PyTorch's, in place, in one pass."""
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    options = {"weight_decay": 0.0} | options
    amsgrad = max_exp_avg_sq is not None
    leaf = param.clone()
    leaf.grad = grad
    optimizer = kind([leaf], betas=(beta1, beta2), amsgrad=amsgrad, fused=True, **options)
    state = {
        "step": torch.tensor(float(step - 1)),
        "exp_avg": exp_avg.clone(),
        "exp_avg_sq": exp_avg_sq.clone(),
    }
    if amsgrad:
        state["max_exp_avg_sq"] = max_exp_avg_sq.clone()
    optimizer.state[leaf] = state
    optimizer.step()
    return (leaf, *(value for name, value in state.items() if name != "step"))
