# SPDX-License-Identifier: Apache-2.0
"""The derivatives of operators by their records, and calls of operators by the shortest way."""

from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import Function, forward_ad

from isobit.torch import fast


class Like(NamedTuple):
    """What is left of a tensor that was not kept for backward."""

    shape: torch.Size
    dtype: torch.dtype


def many(results):
    return results if isinstance(results, tuple) else (results,)


class _OfRecord(Function):
    """An operator with the derivatives of its record: what they need of a call, and backward."""

    @staticmethod
    def keep(ctx, record, arguments, tensors, output):
        """Returns what is kept: of the arguments the options, of all of these some."""
        every = (*tensors, *many(output))
        kept = record.kept.of(every)
        options = record.options.of(arguments)
        if record.spares is not None:
            spared = record.spares(record.options.named(options))
            named = zip(record.kept.names, kept, strict=True)
            kept = [None if name in spared else each for name, each in named]
        ctx.save_for_backward(*kept)
        ctx.set_materialize_grads(False)
        ctx.record, ctx.options = record, options
        known = record.known.of(every)
        likes = (None if each is None else Like(each.shape, each.dtype) for each in known)
        ctx.likes = tuple(likes)
        return kept

    @staticmethod
    def call(ctx):
        values = (*ctx.options, *ctx.likes, *ctx.saved_tensors)
        return SimpleNamespace(**dict(zip(ctx.record.recalled, values, strict=True)))

    @staticmethod
    def backward(ctx, *grads):
        record = ctx.record
        if record.gradients is None:
            raise NotImplementedError(f"{record.name} has no derivative")
        tensors, needs = record.tensors, ctx.needs_input_grad
        before = len(needs) - len(tensors)
        if grads[0] is None and all(each is None for each in grads):
            return (None,) * len(needs)
        wanted = SimpleNamespace(**dict(zip(tensors, needs[before:], strict=True)))
        found = record.gradients(_OfRecord.call(ctx), wanted, *grads)
        return (*(None,) * before, *map(found.get, tensors))


class Derived(_OfRecord):
    """Below the dispatcher: for transforms and forward mode too. arguments: all of the schema, None
    in the place of the tensors, which follow one by one."""

    @staticmethod
    def forward(below, record, arguments, *tensors):
        return below()

    @staticmethod
    def setup_context(ctx, inputs, output):
        _below, record, arguments, *tensors = inputs
        ctx.save_for_forward(*_OfRecord.keep(ctx, record, arguments, tensors, output))

    @staticmethod
    def jvp(ctx, _below, _record, _arguments, *tangents):
        record = ctx.record
        if record.tangents is None:
            raise NotImplementedError(f"{record.name} has no derivative in forward mode")
        along = dict(zip(record.tensors, tangents, strict=True))
        return record.tangents(_OfRecord.call(ctx), SimpleNamespace(**along))


class Recorded(_OfRecord):
    """In the dispatcher's place, where nobody but autograd is to see the call. A forward that keeps
    by itself what backward needs is called sooner than one beside a setup_context."""

    @staticmethod
    def forward(ctx, record, arguments, *tensors):
        output = record.underived(*arguments)
        _OfRecord.keep(ctx, record, arguments, tensors, output)
        return output


# Without what Function.apply looks at before: torch.func, which asks here for a single level.
_apply = super(Function, Derived).apply
_record = super(Function, Recorded).apply


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

        others = list(record.complete(arguments, more))
        tensors = [others[place] for place in record.places]
        for place in record.places:
            others[place] = None
        with enable_single_level_autograd_function():
            return _apply(below, record, others, *tensors)

    return kernel


def _call(record, arguments):
    """The operator's results, past the dispatcher, where nobody else is to see the call; else
    None."""
    arguments = record.complete(arguments, None)
    standing = fast.standing(arguments, record.places)
    if standing == fast.OTHER:
        return None
    if standing == fast.PLAIN:
        return record.underived(*arguments)
    return _record(record, arguments, *[arguments[place] for place in record.places])


_shortly = fast.connect_records(Recorded, _record, Like, SimpleNamespace, _call)


def call(record, arguments):
    """The operator, as PyTorch's dispatcher would call it; but not by way of the dispatcher where
    nobody else is to see the call, for there it goes through Python once more."""
    if not torch.compiler.is_compiling():
        results = _shortly(record, arguments)
        if results is not None:
            return results
    return record.operator(*arguments)


_REFUSALS = RuntimeError, TypeError, ValueError  # those of hooks pass, checkpoints' among them


def short(record, *arguments):
    """`call` for functions that look at their arguments first: None where they have to, and where
    the operator refuses the call, since they say what is wrong with it."""
    if torch.compiler.is_compiling():
        return None
    try:
        return _shortly(record, arguments)
    except _REFUSALS:
        return None
