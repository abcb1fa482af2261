# SPDX-License-Identifier: Apache-2.0
"""What PyTorch must know of an operator, in one record. operators.py, sharding.py and nested.py
tell PyTorch of it, part by part, and know no operator by its name.

The schema is the adapter's: src/isobit/torch/operators.cpp. Every function of a record is given
the call, a namespace of the schema's arguments by their names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import NamedTuple

import torch

from isobit.torch import adapters, derived
from isobit.torch.settings import settings

adapters.load()

SUM = "sum"  # in the place of a dimension: each part has a tensor of its own, to be added up
NARROW = (torch.float16, torch.bfloat16)


def is_autocast(device):
    """Whether autocast is on for such devices. Of meta PyTorch refuses to be asked."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


class Axis(NamedTuple):
    """One way to cut a call into calls: along which dimension each tensor is cut. Arguments that
    are not named are whole in every part, and so are results where None stands."""

    arguments: dict[str, int | str]
    results: tuple[int | str | None, ...]


class Names:
    """Some of the arguments of a schema, or of its tensors and outputs: what they are called, and
    in which places they stand."""

    def __init__(self, places):
        self.names, self.places = tuple(places), tuple(places.values())

    def of(self, every):
        return tuple(every[place] for place in self.places)

    def named(self, values):
        return SimpleNamespace(**dict(zip(self.names, values, strict=True)))


@dataclass(frozen=True, eq=False)
class Operator:
    """torch.ops.isobit.NAME, and _NAME, which has no derivatives.

    results(call): what it returns, as empty tensors; they say shapes and dtypes.
    outputs: the names of what it returns.
    like: the tensor whose device the others must share; the first of the schema if not said.
    host: tensors that lie in the processor's memory wherever the others are.

    rows: tensors that may have any number of further dimensions in front, together, and then every
    result has them in front too. vmap makes one call of its samples so, and nested tensors are
    their rows. Without rows, vmap makes a call a sample.
    dims: arguments that count dimensions from the front.
    together(call): whether rows know nothing of each other in this call.
    axes(call): every Axis, for DTensor; what rank a tensor has, x.ndim tells, and not x.dim().

    keeps: arguments and outputs that are kept for the derivatives.
    spares(call): those of them that this call can do without, by its options.
    knows: of these only shape and dtype are: what the call has of them is a Like, or None where the
    argument was. Others it lacks.
    gradients(call, wanted, *of results): {argument: gradient}. wanted has a flag for each tensor.
    Of several results some may be without gradient, None.
    tangents(call, along): of the results; along has a tangent or None for each tensor.

    autocast: a function of (record, call) that returns the arguments to change, with the attribute
    `keys`: `float32_result`, `float32_inputs` and `narrow_inputs` make such.
    """

    name: str
    results: Callable
    outputs: tuple[str, ...] = ("y",)
    like: str = ""
    host: tuple[str, ...] = ()

    rows: tuple[str, ...] = ()
    dims: tuple[str, ...] = ()
    together: Callable = lambda call: True
    axes: Callable = lambda call: ()

    keeps: tuple[str, ...] = ()
    spares: Callable | None = None
    knows: tuple[str, ...] = ()
    gradients: Callable | None = None
    tangents: Callable | None = None

    autocast: Callable | None = None

    def overload(self, prefix=""):
        return getattr(torch.ops.isobit, prefix + self.name).default

    def __call__(self, *arguments):
        return derived.call(self, arguments)

    # What is asked at every call is found once.

    @cached_property
    def operator(self):
        return self.overload()

    @cached_property
    def underived(self):
        return self.overload("_")._op  # what OpOverload's own call calls

    @cached_property
    def layout(self):
        """What _isobit_fast reads of a record."""
        return (
            *(self.underived, self.defaults, self.places, self.tensors),
            *(self.options.places, self.known.places, self.kept.places, self.recalled),
            *(self.gradients, self.spares),
        )

    @cached_property
    def names(self):
        """The arguments."""
        return tuple(each.name for each in self.operator._schema.arguments)

    @cached_property
    def defaults(self):
        return tuple(each.default_value for each in self.operator._schema.arguments)

    @cached_property
    def places(self):
        """Of the arguments that are tensors, or None."""
        arguments = enumerate(self.operator._schema.arguments)
        return tuple(i for i, each in arguments if str(each.type) in ("Tensor", "Optional[Tensor]"))

    @cached_property
    def tensors(self):
        """Their names."""
        return tuple(self.names[place] for place in self.places)

    @cached_property
    def options(self):
        """All other arguments."""
        others = enumerate(self.names)
        return Names({name: place for place, name in others if place not in self.places})

    @cached_property
    def kept(self):
        """Among tensors and outputs."""
        return self._among(self.keeps)

    @cached_property
    def known(self):
        return self._among(self.knows)

    @cached_property
    def recalled(self):
        """The names of what derivatives are given of a call."""
        return (*self.options.names, *self.known.names, *self.kept.names)

    def _among(self, names):
        every = (*self.tensors, *self.outputs)
        return Names({name: every.index(name) for name in names})

    def complete(self, arguments, more):
        """Positional and named arguments and defaults in the order of the schema."""
        given = len(arguments)
        if not more:
            return (*arguments, *self.defaults[given:])
        others = zip(self.names[given:], self.defaults[given:], strict=True)
        return (*arguments, *(more.get(name, default) for name, default in others))

    def call(self, arguments, more=None):
        return SimpleNamespace(**dict(zip(self.names, self.complete(arguments, more), strict=True)))

    def arguments(self, call):
        """The way back: in the order of the schema."""
        return tuple(getattr(call, name) for name in self.names)

    def given(self, call):
        """{name: tensor} of the arguments that are there."""
        named = ((name, getattr(call, name)) for name in self.tensors)
        return {name: value for name, value in named if value is not None}


def changed(call, **others):
    """The call with other arguments in the place of some."""
    return SimpleNamespace(**vars(call) | others)


def total_of(*terms):
    """Of those that are there; None where none is."""
    given = [term for term in terms if term is not None]
    return sum(given[1:], given[0]) if given else None


def require_one_device(op, tensors):
    """PyTorch would ask the device of any of them, the meta device first, whose results hold
    nothing."""
    (first, x), *others = tensors.items()
    for name, tensor in others:
        if tensor is not None and tensor.device != x.device:
            raise ValueError(f"{op}: {name} is on {tensor.device}; {first} is on {x.device}")


def float32_result(argument):
    """PyTorch's rule for norms: under autocast for CUDA they compute in float32, and return it.
    Ours compute so anyway: it is the type of the result alone that changes, which `argument`
    says. On the CPU autocast leaves norms alone."""

    def rule(record, call):
        wanted = getattr(call, argument)
        x = getattr(call, record.tensors[0])
        if x.dtype in NARROW and wanted is None and not settings.autocast_keeps_dtype:
            return {argument: torch.float32}
        return {}

    rule.keys = ("AutocastCUDA",)
    return rule


def float32_inputs(*names, when):
    """PyTorch's rule for what has large results: under autocast for CUDA 16-bit inputs become
    float32, in those calls of which `when` says so."""

    def rule(_record, call):
        tensors = {name: getattr(call, name) for name in names if when(call)}
        return {name: each.float() for name, each in tensors.items() if each.dtype in NARROW}

    rule.keys = ("AutocastCUDA",)
    return rule


def narrow_inputs(*names):
    """PyTorch's rule for products: under autocast their inputs take autocast's type."""

    def rule(_record, call):
        tensors = {name: getattr(call, name) for name in names}
        return {
            name: each.to(torch.get_autocast_dtype(each.device.type))
            for name, each in tensors.items()
            if each is not None and each.is_floating_point() and each.dtype != torch.float64
        }

    rule.keys = ("AutocastCPU", "AutocastCUDA")
    return rule
