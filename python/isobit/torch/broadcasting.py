# SPDX-License-Identifier: Apache-2.0
"""Tensors made larger by repeating them, whose gradients are sums in Isobit's order. PyTorch adds
the gradient of what it broadcast itself, in an order of its own."""

import torch
from torch.autograd import Function

from isobit.torch.reductions import TOTAL


class _CompiledSpread(Function):
    """x.expand(shape), of a shape that x expands to. Dynamo refuses functions that have a jvp."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, shape):
        return x.expand(shape)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, shape = inputs
        ctx.shape, ctx.x_shape = shape, x.shape

    @staticmethod
    def backward(ctx, grad):
        return summed_to(grad, ctx.x_shape), None


class _Spread(_CompiledSpread):
    """The same in eager mode, forward mode included."""

    @staticmethod
    def jvp(ctx, along, _shape):
        return along.expand(ctx.shape)


def summed_to(grad, shape):
    """The sum of grad over what was repeated of a tensor of this shape."""
    rank = len(shape)
    dims = [
        dim
        for dim in range(-grad.dim(), 0)
        if -dim > rank or (shape[dim] == 1 and grad.shape[dim] != 1)
    ]
    if not dims:
        return grad
    return TOTAL(grad, dims).reshape(shape)


def expanded(x, shape):
    """x where it has the shape already or nobody asks for its gradient; and for TorchScript."""
    if torch.jit.is_tracing():  # which knows no functions of Python
        return x
    if not (x.requires_grad and torch.is_grad_enabled()) or x.shape == shape:
        return x
    spread = _CompiledSpread if torch.compiler.is_compiling() else _Spread
    return spread.apply(x, shape)


def together(one, other):
    """Both in the shape that they expand to; as they are where there is none."""
    try:
        shape = torch.broadcast_shapes(one.shape, other.shape)
    except RuntimeError:  # which PyTorch tells in its own words
        return one, other
    return expanded(one, shape), expanded(other, shape)
