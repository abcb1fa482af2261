# SPDX-License-Identifier: Apache-2.0
"""A step of SGD in PyTorch: what it means, and as one writes it, without and with new arrays.

All take the parameter, the gradient, the buffer or None, and the options of README.md, and give the
new parameter and, with momentum, the new buffer.
"""


def reference(param, grad, momentum_buffer=None, **options):
    """In double, rounded once."""
    given = (param, grad, momentum_buffer)
    found = standard(*(None if each is None else each.double() for each in given), **options)
    return tuple(each.to(param.dtype) for each in found)


def standard(
    param,
    grad,
    momentum_buffer=None,
    *,
    lr=1e-3,
    momentum=0.0,
    dampening=0.0,
    weight_decay=0.0,
    nesterov=False,
    maximize=False,
):
    if maximize:
        grad = -grad
    if weight_decay != 0:
        grad = grad + weight_decay * param
    if momentum == 0:
        return (param - lr * grad,)
    if momentum_buffer is None:
        momentum_buffer = grad.clone()
    else:
        momentum_buffer = momentum * momentum_buffer + (1 - dampening) * grad
    way = grad + momentum * momentum_buffer if nesterov else momentum_buffer
    return param - lr * way, momentum_buffer


def fused(param, grad, momentum_buffer, *, lr=1e-3, momentum=0.9, dampening=0.0):
    """In the places of the parameter and its buffer."""
    momentum_buffer.mul_(momentum).add_(grad, alpha=1 - dampening)
    param.add_(momentum_buffer, alpha=-lr)
    return param, momentum_buffer
