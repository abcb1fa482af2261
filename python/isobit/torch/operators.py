# SPDX-License-Identifier: Apache-2.0
"""What torch.compile, torch.export and callers of torch.ops.isobit need to know of the operators:
shapes, derivatives, batching, autocast."""

import torch
from torch._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.library import register_fake, register_vmap

from isobit.torch import autograd
from isobit.torch.norms import NORMS, Given, Gradients, Incoming, complete, require_one_device
from isobit.torch.settings import settings

_library = torch.library.Library("isobit", "IMPL")  # what it registers lasts as long as it does


def _register_shapes(norm):
    def forward(*arguments, **more):
        given, options = norm.forward_given(complete(norm.operator(), arguments, more))
        require_one_device(norm.name, given._asdict())
        x = given.input
        y = x.new_empty(x.shape, dtype=options.out_dtype or x.dtype)
        return (y, x.new_empty(x.shape)) if norm.adds else y

    def backward(*arguments, **more):
        arguments = complete(norm.operator("_backward"), arguments, more)
        incoming, options, wanted = norm.backward_given(arguments)
        require_one_device(norm.name, {"input": incoming.input} | incoming._asdict())
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


def _register_function(operator, called):
    """called: (the operator without derivatives, its arguments) -> (a Function, what it is given).

    torch.library.register_autograd does not serve: torch.func refuses it, and forward mode loses
    its tangents without a word."""

    def kernel(keys, *arguments, **more):
        keys = keys & torch._C._after_autograd_keyset
        if not autograd.derivatives_wanted(arguments):
            with torch._C._AutoDispatchBelowAutograd():
                return operator.redispatch(keys, *arguments, **more)
        recording = torch.is_grad_enabled()

        def below():
            # A Function's forward records nothing; but another transform may wait below.
            with (
                torch._C._AutoDispatchBelowAutograd(),
                torch.set_grad_enabled(recording),
                forward_ad._set_fwd_grad_enabled(True),
            ):
                return operator.redispatch(keys, *arguments, **more)

        function, given = called(below, complete(operator, arguments, more))
        with enable_single_level_autograd_function():
            return super(torch.autograd.Function, function).apply(*given)

    _library.impl(operator._schema.name, kernel, "Autograd", with_keyset=True)


def _register_derivatives(norm):
    def forward(below, arguments):
        given, options = norm.forward_given(arguments)
        return autograd.Forward, (below, norm, options, *given)

    def backward(below, arguments):
        incoming, options, wanted = norm.backward_given(arguments)
        return autograd.Gradient, (below, norm, options, wanted, *incoming)

    _register_function(norm.operator("", ""), forward)
    _register_function(norm.operator("_backward", ""), backward)


def _register_batching(norm):
    def forward(info, in_dims, *arguments):
        in_dims, arguments = _all(norm.operator("", ""), in_dims, arguments)
        given, options = norm.forward_given(arguments)
        dims, _ = norm.forward_given(in_dims)

        def call(*sample):
            return norm.forward(Given(*sample), options, prefix="")

        return autograd.batched_forward(info, dims, norm, options, given, call)

    def backward(info, in_dims, *arguments):
        in_dims, arguments = _all(norm.operator("_backward", ""), in_dims, arguments)
        incoming, options, wanted = norm.backward_given(arguments)
        dims, _, _ = norm.backward_given(in_dims)

        def call(*sample):
            sample = norm.backward_arguments(Incoming(*sample), options, wanted)
            return norm.operator("_backward", "")(*sample)

        # each sample has sums over its own rows
        return autograd.each_sample(info.batch_size, dims, incoming, call)

    register_vmap(f"isobit::{norm.name}", forward)
    register_vmap(f"isobit::{norm.name}_backward", backward)


def _all(operator, in_dims, arguments):
    """Both as long as the schema: PyTorch leaves out what equals its default."""
    arguments = complete(operator, arguments, {})
    return (*in_dims, *(None,) * (len(arguments) - len(in_dims))), arguments


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
    def total(below, arguments):
        return autograd.Total, (below, *arguments)

    for name in ("add", "increment"):
        operator = getattr(torch.ops.isobit, name).default

        def shape(x, residual=None, name=name):
            require_one_device(name, {"x": x, "residual": residual})
            return x.new_empty(x.shape)

        def batched(info, in_dims, *tensors, operator=operator):
            dims = zip(tensors, in_dims, strict=True)
            return operator(*(autograd.batch_of(info, *each) for each in dims)), 0

        for prefix in ("", "_"):
            register_fake(f"isobit::{prefix}{name}", shape)
        register_vmap(f"isobit::{name}", batched)
        _register_function(operator, total)


for _norm in NORMS:
    _register_shapes(_norm)
    _register_derivatives(_norm)
    _register_batching(_norm)
    _register_autocast(_norm)
_register_elementwise()
