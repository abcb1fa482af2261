# SPDX-License-Identifier: Apache-2.0
"""The four norms: what differs between them, how their operators are called, and their records."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from isobit.torch import formulas
from isobit.torch.records import SUM, Axis, Operator, float32_result, total_of


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
    """centered: layernorm, which subtracts the mean and has a bias. adds: dropout(input) + residual
    is what is normalised, and the second result."""

    name: str
    centered: bool
    adds: bool

    def operator(self, suffix="", prefix="_"):
        return getattr(torch.ops.isobit, prefix + self.name + suffix).default

    def forward(self, given: Given, options: Options, prefix="_"):
        """y, or (y, sum)."""
        return self.operator("", prefix)(*self.forward_arguments(given, options))

    def forward_arguments(self, given, options):
        """In the order of the schema, whatever Given and Options hold."""
        bias = (given.bias,) if self.centered else ()
        added = (given.residual, options.dropout, given.seed) if self.adds else ()
        return (given.input, given.weight, *bias, *options[:4], *added)

    def backward(self, incoming: Incoming, options: Options, wanted: Gradients, prefix="_"):
        """The wanted gradients, None in the place of others and where no gradient comes in."""
        if incoming.grad_y is None:
            if incoming.grad_sum is None:
                return Gradients(None, None, None, None)
            incoming = incoming._replace(grad_y=torch.zeros_like(incoming.input))
        arguments = self.backward_arguments(incoming, options, wanted.once(options))
        found = self.backward_results(self.operator("_backward", prefix)(*arguments))
        return found.twice(options).where(wanted)

    def backward_arguments(self, incoming, options, wanted):
        bias = (wanted.bias,) if self.centered else ()
        added = (incoming.grad_sum, options.dropout, incoming.seed, wanted.residual)
        return (
            *(incoming.grad_y, incoming.input, incoming.weight, *options[:3]),
            *(wanted.input, wanted.weight, *bias, *(added if self.adds else ())),
        )

    def backward_results(self, results):
        bias = results[2] if self.centered else None
        residual = results[-1] if self.adds else None
        return Gradients(results[0], results[1], bias, residual)

    def results_of(self, gradients):
        """The way back."""
        bias = (gradients.bias,) if self.centered else ()
        residual = (gradients.residual,) if self.adds else ()
        return (gradients.input, gradients.weight, *bias, *residual)


LAYER_NORM = Norm("layer_norm", centered=True, adds=False)
ADD_LAYER_NORM = Norm("add_layer_norm", centered=True, adds=True)
RMS_NORM = Norm("rms_norm", centered=False, adds=False)
ADD_RMS_NORM = Norm("add_rms_norm", centered=False, adds=True)
NORMS = (LAYER_NORM, ADD_LAYER_NORM, RMS_NORM, ADD_RMS_NORM)


def _drop(v, options, seed):
    """What forward does to its input before it adds the residual."""
    if v is None or options.dropout == 0:
        return v
    plain = Options(eps=1.0, hidden_dims=options.hidden_dims, dropout=options.dropout)
    factor = ADD_RMS_NORM.forward(Given(torch.ones_like(v), seed=seed), plain, prefix="")[1]
    return v * factor


def _as(value, like):
    return value.to(like.dtype)


def _row_dims(norm, call, x):
    """The dimensions that rows may be cut along. What is dropped depends on a row's number in the
    whole input."""
    if getattr(call, "dropout", 0) == 0:
        return range(x.ndim - call.hidden_dims)
    if any(x.mesh.size(i) > 1 and hasattr(each, "dim") for i, each in enumerate(x.placements)):
        raise NotImplementedError(
            f"dropout_{norm.name}: input is split, as {x.placements}; what is dropped depends on a "
            "row's number in the whole input, which a shard does not know. Redistribute input to "
            "Replicate(), or call it with to_local() and another seed on each rank"
        )
    return ()


def _named(kind, call, **others):
    """The fields of kind, by their names in the schema."""
    named = {name: getattr(call, name) for name in kind._fields if hasattr(call, name)}
    return kind(**(dict.fromkeys(kind._fields) | named | others))


def _options(call):
    return _named(Options, call, dropout=getattr(call, "dropout", 0.0))


def _forward_record(norm):
    rows = ("input", "residual") if norm.adds else ("input",)
    normalised = "sum" if norm.adds else "input"
    outputs = ("y", "sum") if norm.adds else ("y",)

    def results(call):
        x = call.input
        y = x.new_empty(x.shape, dtype=call.out_dtype or x.dtype)
        return (y, x.new_empty(x.shape)) if norm.adds else y

    def axes(call):
        for dim in _row_dims(norm, call, call.input):
            yield Axis(dict.fromkeys(rows, dim), (dim,) * len(outputs))

    def gradients(call, wanted, grad_y, grad_sum=None):
        x, seed = getattr(call, normalised), getattr(call, "seed", None)
        incoming = Incoming(grad_y, grad_sum, x, call.weight, seed)
        wanted = _named(Gradients, wanted)
        return norm.backward(incoming, _options(call), wanted, prefix="")._asdict()

    def tangents(call, along):
        options, x = _options(call), getattr(call, normalised)
        dropped = _drop(along.input, options, getattr(call, "seed", None))
        sum_t = total_of(dropped, getattr(along, "residual", None))
        weights_t = along.weight, getattr(along, "bias", None)
        y_t = formulas.output_tangent(norm, options, x, call.weight, sum_t, *weights_t)
        y_t = _as(y_t, call.y)
        if not norm.adds:
            return y_t
        return y_t, torch.zeros_like(x) if sum_t is None else sum_t

    return Operator(
        norm.name,
        results,
        outputs,
        host=("seed",),
        rows=rows,
        together=lambda call: getattr(call, "dropout", 0) == 0,
        axes=axes,
        keeps=(normalised, "weight", *(("seed",) if norm.adds else ())),
        knows=("y",),
        gradients=gradients,
        tangents=tangents,
        autocast=float32_result("out_dtype"),
    )


def _backward_record(norm):
    name = "sum" if norm.adds else "input"  # of what was normalised
    rows = (name, "grad_y", "grad_sum") if norm.adds else (name, "grad_y")
    added = ("grad_sum", "seed") if norm.adds else ()

    def incoming(call):
        return _named(Incoming, call, input=getattr(call, name))

    def wanted_of(call):
        wanted = (getattr(call, "needs_" + each, False) for each in Gradients._fields)
        return Gradients(*wanted)

    def results(call):
        x, weight, wanted = getattr(call, name), call.weight, wanted_of(call)
        wide = torch.float32 if x.dtype.itemsize == 2 else x.dtype
        columns = (
            x.shape[x.dim() - call.hidden_dims :],
            weight.dtype if weight is not None else wide,
        )
        shapes = Gradients((x.shape, x.dtype), columns, columns, (x.shape, x.dtype))
        return norm.results_of(
            Gradients(
                *(
                    x.new_empty(shape if want else (0,), dtype=dtype)
                    for want, (shape, dtype) in zip(wanted, shapes, strict=True)
                )
            )
        )

    def axes(call):
        wanted = wanted_of(call)
        for dim in _row_dims(norm, call, getattr(call, name)):
            outputs = norm.results_of(Gradients(dim, SUM, SUM, dim).where(wanted))
            yield Axis(dict.fromkeys(rows, dim), outputs)

    def gradients(call, _wanted, *to):
        given, options = incoming(call), _options(call)
        to = norm.backward_results(to).where(wanted_of(call))
        to_sum = total_of(_drop(to.input, options, given.seed), to.residual)
        for_grad_y, for_x, for_weight = formulas.gradient_cotangents(
            *(norm, options, given.grad_y, given.input, given.weight),
            *(to_sum, to.weight, to.bias),
        )
        return {
            "grad_y": _as(for_grad_y, given.grad_y),
            "grad_sum": None if given.grad_sum is None else to_sum,
            name: _as(for_x, given.input),
            "weight": None if given.weight is None else _as(for_weight, given.weight),
        }

    def tangents(call, along):
        given, options, along = incoming(call), _options(call), incoming(along)
        x_t, weight_t, bias_t = formulas.gradient_tangents(norm, options, given, along)
        sum_t = total_of(_as(x_t, given.input), along.grad_sum)
        input_t = _drop(sum_t, options, given.seed)
        found = Gradients(input_t, weight_t, bias_t, sum_t).where(wanted_of(call))
        nothing = given.input.new_empty(0)  # PyTorch wants a tangent of every result
        return tuple(
            _as(nothing if tangent is None else tangent, getattr(call, output))
            for tangent, output in zip(norm.results_of(found), outputs, strict=True)
        )

    outputs = norm.results_of(Gradients("grad_input", "grad_weight", "grad_bias", "grad_residual"))
    return Operator(
        norm.name + "_backward",
        results,
        outputs,
        like=name,
        host=("seed",),
        axes=axes,
        keeps=("grad_y", name, "weight", *added),
        knows=outputs,
        gradients=gradients,
        tangents=tangents,
    )


RECORDS = tuple(make(norm) for norm in NORMS for make in (_forward_record, _backward_record))
