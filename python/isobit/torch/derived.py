# SPDX-License-Identifier: Apache-2.0
"""The derivatives of operators by their records, and calls of operators by the shortest way."""

from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import Function, forward_ad

# What must know of every call. Each returns 0 or False where it does not want to.
WATCHERS = (
    torch._C._are_functorch_transforms_active,
    torch._C._len_torch_dispatch_stack,
    torch._C._is_torch_function_mode_enabled,
    torch._C._is_tracing,
    torch.autograd._profiler_enabled,
)


class Like(NamedTuple):
    """What is left of a tensor that was not kept for backward."""

    shape: torch.Size
    dtype: torch.dtype


def many(results):
    return results if isinstance(results, tuple) else (results,)


class Derived(Function):
    """An operator with the derivatives of its record. others: the arguments, None in the place of
    the tensors, which follow one by one."""

    @staticmethod
    def forward(below, record, others, *tensors):
        return below()

    @staticmethod
    def setup_context(ctx, inputs, output):
        record, every = inputs[1], (*inputs[3:], *many(output))
        kept = [every[place] for _, place in record.kept]
        ctx.save_for_backward(*kept)
        ctx.save_for_forward(*kept)
        ctx.set_materialize_grads(False)
        ctx.record, ctx.others = record, inputs[2]
        known = (every[at] for _, at in record.known)
        ctx.likes = tuple(None if each is None else Like(each.shape, each.dtype) for each in known)

    @staticmethod
    def _call(ctx):
        record = ctx.record
        call = dict(zip(record.names, ctx.others, strict=True))
        for (name, _), like in zip(record.known, ctx.likes, strict=True):
            call[name] = like
        for (name, _), tensor in zip(record.kept, ctx.saved_tensors, strict=True):
            call[name] = tensor
        return SimpleNamespace(**call)

    @staticmethod
    def backward(ctx, *grads):
        record = ctx.record
        if record.gradients is None:
            raise NotImplementedError(f"{record.name} has no derivative")
        needs = ctx.needs_input_grad
        if grads[0] is None and all(each is None for each in grads):
            return (None,) * len(needs)
        wanted = SimpleNamespace(**dict(zip(record.tensors, needs[3:], strict=True)))
        found = record.gradients(Derived._call(ctx), wanted, *grads)
        return (None, None, None, *map(found.get, record.tensors))

    @staticmethod
    def jvp(ctx, _below, _record, _others, *tangents):
        record = ctx.record
        if record.tangents is None:
            raise NotImplementedError(f"{record.name} has no derivative in forward mode")
        along = dict(zip(record.tensors, tangents, strict=True))
        return record.tangents(Derived._call(ctx), SimpleNamespace(**along))


# Without what Function.apply looks at before: torch.func, which asks here for a single level.
_apply = super(Function, Derived).apply


def transforms_active():
    """Whether a transform of torch.func or forward mode is under way."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _derivatives_wanted(arguments):
    """Whether an operator called with these has derivatives to think of."""
    return (
        transforms_active()
        or type(arguments[0]) is not torch.Tensor  # in a trace, forward mode leaves no other sign
        or (torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments))
    )


def _recorded(record, below, arguments):
    """What below() gives, with the derivatives of a call of these, all of the schema."""
    others = list(arguments)
    tensors = [others[place] for place in record.places]
    for place in record.places:
        others[place] = None
    return _apply(below, record, others, *tensors)


def kernel_of(record):
    """What PyTorch's dispatcher calls for autograd. torch.library.register_autograd does not serve:
    torch.func refuses it, and forward mode loses its tangents without a word."""
    operator = record.operator

    def kernel(keys, *arguments, **more):
        keys = keys & torch._C._after_autograd_keyset
        if not _derivatives_wanted(arguments):
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

        with enable_single_level_autograd_function():
            return _recorded(record, below, record.complete(arguments, more))

    return kernel


PLAIN = (torch.Tensor, torch.nn.Parameter, type(None))


def _is_watched():
    for watches in WATCHERS:
        if watches():
            return True
    return forward_ad._current_level >= 0 or torch._C._is_any_autocast_enabled()


def call(record, arguments):
    """The operator, as PyTorch's dispatcher would call it; but not by way of the dispatcher where
    nobody else is to see the call, for there it goes through Python once more."""
    if torch.compiler.is_compiling() or _is_watched():
        return record.operator(*arguments)
    arguments = record.complete(arguments, None)
    requires_grad = False
    for place in record.places:
        tensor = arguments[place]
        if type(tensor) not in PLAIN:
            return record.operator(*arguments)
        requires_grad = requires_grad or (tensor is not None and tensor.requires_grad)
    if requires_grad and torch.is_grad_enabled():
        return _recorded(record, lambda: record.underived(*arguments), arguments)
    return record.underived(*arguments)
