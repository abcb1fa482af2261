# SPDX-License-Identifier: Apache-2.0
"""Makes of the records what torch.compile, torch.export, transforms and callers of
torch.ops.isobit need to know of the operators: shapes, derivatives, batching, autocast."""

from types import SimpleNamespace

import torch
from torch._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import Function, forward_ad
from torch.library import register_fake, register_vmap

from isobit.torch.catalog import RECORDS
from isobit.torch.records import Like, changed, require_one_device

PREFIXES = ("", "_")


_library = torch.library.Library("isobit", "IMPL")  # what it registers lasts as long as it does


def _many(results):
    return results if isinstance(results, tuple) else (results,)


def register(record):
    """Tells PyTorch of an operator that its adapter has defined. DTensor is told by sharding.py."""
    _register_shapes(record)
    _register_derivatives(record)
    _register_batching(record)
    if record.autocast is not None:
        _register_autocast(record)


def _register_shapes(record):
    like = record.like or record.tensors[0]

    def shapes(*arguments, **more):
        call = record.call(arguments, more)
        given = {like: getattr(call, like)} | record.given(call)
        for name in record.host:
            given.pop(name, None)
        require_one_device(record.name, given)
        return record.results(call)

    for prefix in PREFIXES:
        register_fake(f"isobit::{prefix}{record.name}", shapes)


class Derived(Function):
    """An operator with the derivatives of its record. others: the arguments, None in the place of
    the tensors, which follow one by one."""

    @staticmethod
    def forward(below, record, others, *tensors):
        return below()

    @staticmethod
    def setup_context(ctx, inputs, output):
        record, every = inputs[1], (*inputs[3:], *_many(output))
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


def _register_derivatives(record):
    """torch.library.register_autograd does not serve: torch.func refuses it, and forward mode loses
    its tangents without a word."""
    operator, places, apply = record.operator, record.places, super(Function, Derived).apply

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
        tensors = [others[place] for place in places]
        for place in places:
            others[place] = None
        with enable_single_level_autograd_function():
            return apply(below, record, others, *tensors)

    _library.impl(record.name, kernel, "Autograd", with_keyset=True)


def _each_sample(size, dims, call, record):
    """A call for every sample by itself, and the results as one batch."""

    def sample(index):
        given = (
            value.select(dims[name], index) if isinstance(dims[name], int) else value
            for name, value in vars(call).items()
        )
        return _many(record.operator(*given))

    return tuple(map(torch.stack, zip(*map(sample, range(size)), strict=True)))


def _batch_of(value, dim, size):
    """value with a sample in each element of its first dimension."""
    if value is None:
        return None
    if dim is None:
        return value.expand(size, *value.shape)
    return value.movedim(dim, 0)


def _one_call(size, dims, call, record):
    """Rows know nothing of each other, so a batch of them is one call."""
    rows = {name: _batch_of(getattr(call, name), dims[name], size) for name in record.rows}
    rank = next(each.dim() for each in rows.values() if each is not None) - 1  # of a sample

    def shifted(dim):  # past the batch; what is out of range stays so
        return dim + (dim >= 0) - (dim < -rank)

    counted = {name: shifted(getattr(call, name)) for name in record.dims}
    return _many(record.operator(*record.arguments(changed(call, **rows, **counted))))


def _register_batching(record):
    def batched(info, in_dims, *arguments):
        call = record.call(arguments)  # PyTorch leaves out what equals its default
        dims = dict.fromkeys(record.names) | dict(zip(record.names, in_dims, strict=False))
        # Of lists PyTorch says for each element that it has no batch.
        in_rows = all(name in record.rows for name, dim in dims.items() if isinstance(dim, int))
        run = _one_call if in_rows and record.together(call) else _each_sample
        results = run(info.batch_size, dims, call, record)
        return (results[0], 0) if len(results) == 1 else (results, (0,) * len(results))

    register_vmap(f"isobit::{record.name}", batched)


def _register_autocast(record):
    def under(key, operator):
        above = DispatchKeySet(getattr(DispatchKey, key))

        def kernel(*arguments, **more):
            call = record.call(arguments, more)
            call = changed(call, **record.autocast(record, call))
            with _ExcludeDispatchKeyGuard(above):
                return operator(*record.arguments(call))

        return kernel

    for prefix in PREFIXES:
        for key in record.autocast.keys:
            kernel = under(key, record.overload(prefix))
            _library.impl(prefix + record.name, kernel, key)


for _record in RECORDS:
    register(_record)
