# SPDX-License-Identifier: Apache-2.0
"""What torch.compile, torch.export and callers of torch.ops.isobit need to know of the operators:
shapes, derivatives, batching, autocast."""

import torch
from torch._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard
from torch.library import register_autograd, register_fake, register_vmap

from isobit.torch import autograd
from isobit.torch.norms import NORMS, Given, Gradients, Incoming, complete
from isobit.torch.settings import settings

_library = torch.library.Library("isobit", "IMPL")  # what it registers lasts as long as it does


def _register_shapes(norm):
    def forward(*arguments, **more):
        given, options = norm.forward_given(complete(norm.operator(), arguments, more))
        x = given.input
        y = x.new_empty(x.shape, dtype=options.out_dtype or x.dtype)
        return (y, x.new_empty(x.shape)) if norm.adds else y

    def backward(*arguments, **more):
        arguments = complete(norm.operator("_backward"), arguments, more)
        incoming, options, wanted = norm.backward_given(arguments)
        x, weight = incoming.input, incoming.weight
        wide = torch.float32 if x.dtype.itemsize == 2 else x.dtype
        columns = (
            x.shape[x.dim() - options.hidden_dims :],
            weight.dtype if weight is not None else wide,
        )
        rows = (x.shape, x.dtype)
        shapes = Gradients(rows, columns, columns, rows)
        return norm.results_of(
            Gradients(
                *(
                    x.new_empty(shape if want else (0,), dtype=dtype)
                    for want, (shape, dtype) in zip(wanted, shapes, strict=True)
                )
            )
        )

    for prefix in ("", "_"):
        register_fake(f"isobit::{prefix}{norm.name}", forward)
        register_fake(f"isobit::{prefix}{norm.name}_backward", backward)


def _register_derivatives(norm):
    def setup(ctx, inputs, output):
        given, ctx.options = norm.forward_given(inputs)
        ctx.count = len(inputs)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1] if norm.adds else given.input, given.weight, given.seed)

    def backward(ctx, grad_y, grad_sum=None):
        if grad_y is None and grad_sum is None:
            return (None,) * ctx.count
        x, weight, seed = ctx.saved_tensors
        if grad_y is None:
            grad_y = torch.zeros_like(x)
        # arguments that have their defaults are left out at the end
        needs, _ = norm.forward_given(complete(norm.operator(), ctx.needs_input_grad, {}))
        wanted = Gradients(*(bool(need) for need in needs[:4]))
        incoming = Incoming(grad_y, grad_sum, x, weight, seed)
        found = norm.backward(incoming, ctx.options, wanted.once(ctx.options), prefix="")
        found = found.twice(ctx.options).where(wanted)
        nothing = type(ctx.options)(None, None, None, None, None)
        return norm.forward_arguments(Given(*found), nothing)

    register_autograd(f"isobit::{norm.name}", backward, setup_context=setup)


def _register_second_derivatives(norm):
    def setup(ctx, inputs, output):
        incoming, ctx.options, ctx.wanted = norm.backward_given(inputs)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*incoming)

    def backward(ctx, *to):
        incoming = Incoming(*ctx.saved_tensors)
        to = norm.backward_results(to).where(ctx.wanted)
        found = autograd.gradient_cotangents(norm, ctx.options, incoming, to)
        nothing = type(ctx.options)(None, None, None, None, None)
        return norm.backward_arguments(found, nothing, Gradients(None, None, None, None))

    register_autograd(f"isobit::{norm.name}_backward", backward, setup_context=setup)


def _register_batching(norm):
    def forward(info, in_dims, *arguments):
        given, options = norm.forward_given(arguments)
        dims, _ = norm.forward_given(in_dims)

        def call(*sample):
            return norm.forward(Given(*sample), options, prefix="")

        return autograd.batched_forward(info, dims, norm, options, given, call)

    def backward(info, in_dims, *arguments):
        incoming, options, wanted = norm.backward_given(arguments)
        dims, _, _ = norm.backward_given(in_dims)

        def call(*sample):
            sample = norm.backward_arguments(Incoming(*sample), options, wanted)
            return norm.operator("_backward", "")(*sample)

        return autograd.each_sample(info.batch_size, dims, incoming, call)

    register_vmap(f"isobit::{norm.name}", forward)
    register_vmap(f"isobit::{norm.name}_backward", backward)


_AUTOCAST = DispatchKeySet(DispatchKey.AutocastCUDA)


def _register_autocast(norm):
    """PyTorch's norms compute in float32 under autocast for CUDA, and return it. Ours compute so
    anyway: it is the type of y alone that changes. On the CPU autocast leaves norms alone."""

    def rule(operator):
        def forward(*arguments, **more):
            given, options = norm.forward_given(complete(operator, arguments, more))
            narrow = given.input.dtype in (torch.float16, torch.bfloat16)
            if narrow and options.out_dtype is None and not settings.autocast_keeps_dtype:
                options = options._replace(out_dtype=torch.float32)
            with _ExcludeDispatchKeyGuard(_AUTOCAST):
                return operator(*norm.forward_arguments(given, options))

        return forward

    for prefix in ("", "_"):
        _library.impl(prefix + norm.name, rule(norm.operator("", prefix)), "AutocastCUDA")


def _register_elementwise():
    for prefix in ("", "_"):
        register_fake(f"isobit::{prefix}add", lambda x, residual: x.new_empty(x.shape))
        register_fake(f"isobit::{prefix}increment", lambda x: x.new_empty(x.shape))
    register_autograd("isobit::add", lambda ctx, grad: (grad, grad))
    register_autograd("isobit::increment", lambda ctx, grad: grad)


for _norm in NORMS:
    _register_shapes(_norm)
    _register_derivatives(_norm)
    _register_second_derivatives(_norm)
    _register_batching(_norm)
    _register_autocast(_norm)
_register_elementwise()
