# SPDX-License-Identifier: Apache-2.0
"""What DTensor needs to know of the operators: how they may be split over ranks.

Rows know nothing of each other: each rank has its own, with the whole weights, and nobody waits.
Only the gradients of weights are sums over all rows, which stay parts of a sum until someone asks.
"""

import sys
import warnings

import torch

from isobit.torch.norms import NORMS, Given, Gradients, Incoming, Options, complete

_DTENSOR = "torch.distributed.tensor"
_NO_OPTIONS = Options(*(None,) * len(Options._fields))
_NO_GRADIENTS = Gradients(*(None,) * len(Gradients._fields))


def _placements(dims, *tensors):
    """How rows, indexed by so many dimensions, may lie: whole, or split as one of these is."""
    from torch.distributed.tensor import Replicate

    found = {Replicate(): None}  # in order, for all ranks must choose alike
    for tensor in filter(None, tensors):
        found |= {each: None for each in tensor.placements if getattr(each, "dim", dims) < dims}
    return list(found)


def _refuse_split_dropout(op, x):
    if any(x.mesh.size(i) > 1 and hasattr(each, "dim") for i, each in enumerate(x.placements)):
        raise NotImplementedError(
            f"dropout_{op}: input is split, as {x.placements}; what is dropped depends on a row's "
            "number in the whole input, which a shard does not know. Redistribute input to "
            "Replicate(), or call it with to_local() and another seed on each rank"
        )


def _row_dims(op, x, options):
    """How many dimensions rows may be split along."""
    if options.dropout:
        _refuse_split_dropout(op, x)
        return 0
    return x.ndim - options.hidden_dims


def _register_norm(norm, register):
    from torch.distributed.tensor import Partial, Replicate

    whole = Replicate()

    def forward(*arguments, **more):
        given, options = norm.forward_given(complete(norm.operator(), arguments, more))
        dims = _row_dims(norm.name, given.input, options)
        for rows in _placements(dims, given.input, given.residual):
            inputs = Given(*_where(given, Given(rows, whole, whole, rows, whole)))
            outputs = [rows, rows] if norm.adds else [rows]
            yield outputs, list(norm.forward_arguments(inputs, _NO_OPTIONS))

    def backward(*arguments, **more):
        arguments = complete(norm.operator("_backward"), arguments, more)
        incoming, options, wanted = norm.backward_given(arguments)
        dims = _row_dims(norm.name, incoming.input, options)
        for rows in _placements(dims, incoming.input, incoming.grad_y, incoming.grad_sum):
            sums = whole if rows == whole else Partial()
            outputs = _where(wanted, Gradients(rows, sums, sums, rows), otherwise=whole)
            inputs = Incoming(*_where(incoming, Incoming(rows, rows, rows, whole, whole)))
            inputs = norm.backward_arguments(inputs, _NO_OPTIONS, _NO_GRADIENTS)
            yield list(norm.results_of(Gradients(*outputs))), list(inputs)

    for prefix in ("", "_"):
        register(norm.operator("", prefix))(forward)
        register(norm.operator("_backward", prefix))(backward)


def _where(present, placements, otherwise=None):
    pairs = zip(present, placements, strict=True)
    return [place if each else otherwise for each, place in pairs]


def _register_elementwise(register):
    from torch.distributed.tensor import Partial

    def add(x, residual):
        everywhere = [*_placements(x.ndim, x, residual), Partial()]
        return [([each], [each, each]) for each in everywhere]

    def increment(x):
        return [([each], [each]) for each in _placements(x.ndim, x)]

    for rule in (add, increment):
        for prefix in ("", "_"):
            register(getattr(torch.ops.isobit, prefix + rule.__name__).default)(rule)


def register():
    """Tells DTensor, which has been imported."""
    try:
        from torch.distributed.tensor.experimental import register_sharding
    except ImportError as missing:
        warnings.warn(f"isobit.torch will not take DTensors: {missing}", stacklevel=2)
        return
    for norm in NORMS:
        _register_norm(norm, register_sharding)
    _register_elementwise(register_sharding)


class _AtImport:
    """A finder of modules that knows one: registers as soon as someone has imported DTensor.

    Importing it here would make `import isobit.torch` several times dearer for all who have no use
    for it, and there is no call of ours to wait for: compiled code goes straight to the operators.
    """

    def find_spec(self, name, path=None, target=None):
        if name != _DTENSOR:
            return None
        others = (each for each in sys.meta_path if each is not self and hasattr(each, "find_spec"))
        spec = next(filter(None, (each.find_spec(name, path, target) for each in others)), None)
        if spec is not None:
            spec.loader.exec_module = self._then_register(spec.loader.exec_module)
        return spec

    def _then_register(self, execute):
        def exec_module(module):
            execute(module)
            sys.meta_path.remove(self)
            register()

        return exec_module


def register_when_imported():
    if _DTENSOR in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _AtImport())
