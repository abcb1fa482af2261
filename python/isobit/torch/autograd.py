# SPDX-License-Identifier: Apache-2.0
"""The norms' short ways to their derivatives: eager calls take `Eager`, or `Recorded` where it
serves, which PyTorch runs with the least ado. Everything else, transforms and compiled code, calls
the operators without an underscore, which have the derivatives of their records.

First-order gradients come from the kernels, whether or not a graph of them is asked for. Nothing
but the input, or the sum, and the weight is kept for backward: the kernel finds the statistics
again.
"""

import torch
from torch.autograd import Function

from isobit.torch import fast
from isobit.torch.derived import transforms_active
from isobit.torch.norms import NORMS, Given, Gradients, Incoming, Options


class Eager(Function):
    """A norm outside of all that."""

    @staticmethod
    def forward(ctx, norm, options, *given):
        given = Given(*given)
        output = norm.forward(given, options)
        ctx.norm, ctx.options = norm, options
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1] if norm.adds else given.input, given.weight, given.seed)
        return output

    @staticmethod
    def backward(ctx, grad_y, grad_sum=None):
        x, weight, seed = ctx.saved_tensors
        incoming = Incoming(grad_y, grad_sum, x, weight, seed)
        wanted = Gradients(*ctx.needs_input_grad[2:6])
        prefix = "" if torch.is_grad_enabled() else "_"
        return (None, None, *ctx.norm.backward(incoming, ctx.options, wanted, prefix), None)


def _unwrapped_apply(function):
    """Function.apply without its wrapper in Python, which only looks for transforms."""
    return super(Function, function).apply


_apply_eager = _unwrapped_apply(Eager)


def _operators(norm):
    """The operators of a norm, called as the short way's functions are."""
    forward, backward = norm.operator()._op, norm.operator("_backward")._op
    if not norm.adds:
        return forward, backward
    every = (True,) * (2 + norm.centered)

    def added(*arguments):
        *plain, residual = arguments
        return forward(*plain, 1, False, None, residual)

    def added_backward(grad_y, total, weight, eps, grad_sum):
        return backward(grad_y, total, weight, eps, 1, False, *every, grad_sum)

    return added, added_backward


def _recorded(norm, run, run_backward):
    """Eager for calls whose only option is eps: (input, weight, [bias,] eps[, residual]), and its
    gradients of (ctx, what was kept, grad_y[, grad_sum]). `run_backward` makes all gradients.
    Between PyTorch and the kernel stands as little as can be."""
    adds, tensors = norm.adds, 2 + norm.centered
    everything = (*(True,) * tensors, False, *(True,) * adds)

    def given_of(arguments):
        x, weight, *bias, eps, residual = arguments if adds else (*arguments, None)
        return Given(x, weight, *(bias or (None,)), residual), Options(eps)

    class Recorded(Function):
        @staticmethod
        def forward(ctx, *arguments):
            output = run(*arguments)
            if adds:
                ctx.set_materialize_grads(False)
                ctx.save_for_backward(output[1], arguments[1])
            else:
                ctx.save_for_backward(arguments[0], arguments[1])
            ctx.eps = arguments[tensors]
            return output

        @staticmethod
        def backward(ctx, *grads):
            return gradients(ctx, ctx.saved_tensors, *grads)

    def gradients(ctx, kept, *grads):
        x, weight = kept
        needs = ctx.needs_input_grad
        wide = torch.is_grad_enabled() or torch.compiler.is_compiling()  # compiled autograd
        if needs == everything and not wide and grads[0] is not None:
            found = run_backward(grads[0], x, weight, ctx.eps, *grads[1:])
            return (*found[:tensors], None, *found[:adds])
        wanted = Gradients(*map(bool, given_of(needs)[0][:4]))
        incoming = Incoming(grads[0], grads[1] if adds else None, x, weight, None)
        prefix = "" if torch.is_grad_enabled() else "_"
        found = norm.backward(incoming, Options(ctx.eps), wanted, prefix)
        return (*found[:tensors], None, *found[3 : 3 + adds])

    return Recorded, gradients


def _ways(norm):
    """What fast.connect_norms wants of a norm."""
    forward, backward = _operators(norm)
    small, gradients = _recorded(norm, forward, backward)
    large, _ = _recorded(norm, forward, backward)
    return small, _unwrapped_apply(small), _unwrapped_apply(large), forward, gradients


fast.connect_norms(_ways(norm) for norm in NORMS)


def call(norm, options, given):
    """A norm with its derivatives, outside of compiled code."""
    if transforms_active() or torch._C._is_tracing():
        return norm.forward(given, options, prefix="")
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in given):
        return _apply_eager(norm, options, *given)
    return norm.forward(given, options)
