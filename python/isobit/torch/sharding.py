# SPDX-License-Identifier: Apache-2.0
"""What DTensor needs to know of the operators: how they may be split over ranks, which the axes of
their records say.

Rows know nothing of each other: each rank has its own, with the whole weights, and nobody waits.
Only the gradients of weights are sums over all rows, which stay parts of a sum until someone asks.
"""

import sys
import warnings

from isobit.torch.catalog import RECORDS
from isobit.torch.operators import PREFIXES
from isobit.torch.records import SUM, Axis

_DTENSOR = "torch.distributed.tensor"


def _cuts(call, record):
    """(an axis, how a tensor lies that is cut along it) for each way in which one lies already; an
    axis of sums alone asks for nothing. In an order that all ranks share."""
    axes, given = list(record.axes(call)), record.given(call)
    names = dict.fromkeys(name for axis in axes for name in axis.arguments)
    for name in names:
        for placement in given[name].placements if name in given else ():
            for axis in axes:
                own = axis.arguments.get(name)
                # Of other kinds than Shard nobody knows what they are along another dimension.
                if own is not None and own == getattr(placement, "dim", None):
                    yield axis, placement
    yield from ((axis, None) for axis in axes if {*axis.arguments.values()} == {SUM})


def placements_of(record):
    """The function that register_sharding wants: of DTensors' specs."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    def place(dim, placement):
        if dim is None:
            return Replicate()
        if dim == SUM:
            return Partial()
        return placement if placement.dim == dim else Shard(dim)

    def placements(*arguments, **more):
        call = record.call(arguments, more)
        given, found = record.given(call), []
        whole = Axis({}, (None,) * len(record.outputs))
        for axis, placement in ((whole, None), *_cuts(call, record)):
            results = [place(dim, placement) for dim in axis.results]
            inputs = [
                place(axis.arguments.get(name), placement) if name in given else None
                for name in record.names
            ]
            if (results, inputs) not in found:
                found.append((results, inputs))
        return found

    return placements


def register():
    """Tells DTensor, which has been imported."""
    try:
        from torch.distributed.tensor.experimental import register_sharding
    except ImportError as missing:
        warnings.warn(f"isobit.torch will not take DTensors: {missing}", stacklevel=2)
        return
    for record in RECORDS:
        register_sharding([record.overload(each) for each in PREFIXES])(placements_of(record))


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
