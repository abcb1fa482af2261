# SPDX-License-Identifier: Apache-2.0
"""The four norms as PyTorch sees them: what differs between them, and how their operators are
called. torch.ops.isobit has each twice: with a leading underscore it has no derivatives."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from isobit.torch import adapters

adapters.load()


class Options(NamedTuple):
    """What a call is told beside its tensors; the last is for norms that add."""

    eps: float
    hidden_dims: int = 1
    zero_centered: bool = False
    out_dtype: torch.dtype | None = None
    dropout: float = 0.0


class Given(NamedTuple):
    """The tensors of a call, None where they are absent."""

    input: torch.Tensor
    weight: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    residual: torch.Tensor | None = None
    seed: torch.Tensor | None = None


class Incoming(NamedTuple):
    """The tensors of a backward call; input is what was normalised, so the sum where there is
    one."""

    grad_y: torch.Tensor
    grad_sum: torch.Tensor | None
    input: torch.Tensor
    weight: torch.Tensor | None
    seed: torch.Tensor | None


class Gradients(NamedTuple):
    """What backward returns, or whether it is wanted."""

    input: torch.Tensor | bool | None
    weight: torch.Tensor | bool | None
    bias: torch.Tensor | bool | None
    residual: torch.Tensor | bool | None

    def where(self, wanted):
        return Gradients(*(each if want else None for each, want in zip(self, wanted, strict=True)))

    # Without dropout the residual's gradient is the input's, and the operators return it once.

    def once(self, options):
        """What to ask of the operators."""
        if options.dropout > 0:
            return self
        return self._replace(input=self.input or self.residual, residual=False)

    def twice(self, options):
        """Of what they returned."""
        return self if options.dropout > 0 else self._replace(residual=self.input)


@dataclass(frozen=True, eq=False)
class Norm:
    """centred: layernorm, which subtracts the mean and has a bias. adds: dropout(input) + residual
    is what is normalised, and the second result."""

    name: str
    centred: bool
    adds: bool

    def operator(self, suffix="", prefix="_"):
        return getattr(torch.ops.isobit, prefix + self.name + suffix).default

    def forward(self, given: Given, options: Options, prefix="_"):
        """y, or (y, sum)."""
        return self.operator("", prefix)(*self.forward_arguments(given, options))

    def forward_arguments(self, given, options):
        """In the order of the schema, whatever Given and Options hold."""
        bias = (given.bias,) if self.centred else ()
        added = (given.residual, options.dropout, given.seed) if self.adds else ()
        return (given.input, given.weight, *bias, *options[:4], *added)

    def forward_given(self, arguments):
        """The way back: (given, options)."""
        input, weight, *rest = arguments
        bias = rest.pop(0) if self.centred else None
        *options, residual, dropout, seed = rest if self.adds else (*rest, None, 0.0, None)
        return Given(input, weight, bias, residual, seed), Options(*options, dropout)

    def backward(self, incoming: Incoming, options: Options, wanted: Gradients, prefix="_"):
        """The wanted gradients, None in the place of others."""
        arguments = self.backward_arguments(incoming, options, wanted)
        found = self.backward_results(self.operator("_backward", prefix)(*arguments))
        return found.where(wanted)

    def backward_arguments(self, incoming, options, wanted):
        bias = (wanted.bias,) if self.centred else ()
        added = (incoming.grad_sum, options.dropout, incoming.seed, wanted.residual)
        return (
            *(incoming.grad_y, incoming.input, incoming.weight, *options[:3]),
            *(wanted.input, wanted.weight, *bias, *(added if self.adds else ())),
        )

    def backward_given(self, arguments):
        """The way back: (incoming, options, wanted)."""
        grad_y, x, weight, eps, hidden_dims, zero_centered, *rest = arguments
        wants_input, wants_weight = rest[:2]
        wants_bias = rest[2] if self.centred else False
        grad_sum, dropout, seed, wants_residual = (
            rest[-4:] if self.adds else (None, 0.0, None, False)
        )
        return (
            Incoming(grad_y, grad_sum, x, weight, seed),
            Options(eps, hidden_dims, zero_centered, None, dropout),
            Gradients(wants_input, wants_weight, wants_bias, wants_residual),
        )

    def backward_results(self, results):
        bias = results[2] if self.centred else None
        residual = results[-1] if self.adds else None
        return Gradients(results[0], results[1], bias, residual)

    def results_of(self, gradients):
        """The way back."""
        bias = (gradients.bias,) if self.centred else ()
        residual = (gradients.residual,) if self.adds else ()
        return (gradients.input, gradients.weight, *bias, *residual)


LAYER_NORM = Norm("layer_norm", centred=True, adds=False)
ADD_LAYER_NORM = Norm("add_layer_norm", centred=True, adds=True)
RMS_NORM = Norm("rms_norm", centred=False, adds=False)
ADD_RMS_NORM = Norm("add_rms_norm", centred=False, adds=True)
NORMS = (LAYER_NORM, ADD_LAYER_NORM, RMS_NORM, ADD_RMS_NORM)


def complete(operator, arguments, more):
    """Positional and named arguments and defaults in the order of the schema."""
    missing = operator._schema.arguments[len(arguments) :]
    return (*arguments, *(more.get(each.name, each.default_value) for each in missing))


def require_one_device(op, tensors):
    """For all but a seed. PyTorch would ask the device of any of them, the meta device first, whose
    results hold nothing."""
    (first, x), *others = tensors.items()
    for name, tensor in others:
        if tensor is not None and name != "seed" and tensor.device != x.device:
            raise ValueError(f"{op}: {name} is on {tensor.device}; {first} is on {x.device}")
