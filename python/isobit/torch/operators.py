# SPDX-License-Identifier: Apache-2.0
"""Makes of the records what torch.compile, torch.export, transforms and callers of
torch.ops.isobit need to know of the operators: shapes, derivatives, batching, autocast."""

import torch
from torch._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard
from torch.library import register_fake, register_vmap

from isobit.torch.catalog import RECORDS
from isobit.torch.derived import kernel_of, many
from isobit.torch.records import changed, require_one_device

PREFIXES = ("", "_")


_library = torch.library.Library("isobit", "IMPL")  # what it registers lasts as long as it does


def register(record):
    """Tells PyTorch of an operator that its adapter has defined. DTensor is told by sharding.py."""
    _register_shapes(record)
    _library.impl(record.name, kernel_of(record), "Autograd", with_keyset=True)
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


def _each_sample(size, dims, call, record):
    """A call for every sample by itself, and the results as one batch."""

    def sample(index):
        given = (
            value.select(dims[name], index) if isinstance(dims[name], int) else value
            for name, value in vars(call).items()
        )
        return many(record.operator(*given))

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
    return many(record.operator(*record.arguments(changed(call, **rows, **counted))))


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
