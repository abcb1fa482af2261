# SPDX-License-Identifier: Apache-2.0
"""Finds out what a norm of somebody else's class computes: its forward runs on a few rows, with
random weights in the place of its own."""

import inspect
import math
import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import torch
from torch import nn

from isobit.torch import functional

# What Isobit computes, and where.
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
DEVICES = ("cpu", "cuda", "meta")

_NARROW = (torch.float16, torch.bfloat16)
_SINGLE = (torch.float32, *_NARROW)  # all are computed in single precision
_ROUNDINGS = 16  # a row's results differ by fewer, of its largest; a variance over N - 1 by more
_GRADIENT = 1e-3  # of a row's largest; where statistics are taken for constants it differs by 1
_LEAST_WIDTH = 4  # the gradient of two centered elements is rounding errors alone


class Unsuited(Exception):
    """Why a module stays as it is."""


def class_name(module):
    """Of a script, that of the class which it was made from."""
    return getattr(module, "original_name", type(module).__name__)


def lies_in(name, others):
    """Whether a module lies in another, or is it, by their names in one model."""
    return any(f"{name}.".startswith(f"{other}." if other else "") for other in others)


@dataclass(frozen=True)
class Recipe:
    """How a norm of somebody else's class is computed: by which function, and from which of its
    attributes. dtypes: of the result, for those of weight and input."""

    weight: str | None
    bias: str | None
    eps: str
    centered: bool = False
    zero_centered: bool = False
    dtypes: tuple = ()

    def weights(self, module, input):
        """The weight, and the bias of what is centered, each of them or None."""
        names = (self.weight, self.bias)[: 1 + self.centered]
        return [_beside(input, name and getattr(module, name)) for name in names]

    def __call__(self, module, input, out_dtype=None):
        weights = self.weights(module, input)
        shape = input.shape[-1:] if weights[0] is None else weights[0].shape
        norm = functional.layer_norm if self.centered else functional.rms_norm
        return norm(
            *(input, shape, *weights, getattr(module, self.eps)),
            zero_centered=self.zero_centered,
            out_dtype=out_dtype,
        )

    def forward(self, module, input):
        """Of a module in the place of the one that was tried."""
        return self(module, input, self.result_dtype(module, input))

    def result_dtype(self, module, input):
        """Of module's own forward, None where it was not tried."""
        weight_dtype = getattr(module, self.weight).dtype if self.weight else input.dtype
        return self._dtypes.get((weight_dtype, input.dtype))

    @cached_property
    def _dtypes(self):
        return dict(self.dtypes)


def _beside(input, weight):
    """The weight in a type that may stand beside the input's, not a bit changed."""
    if weight is None or weight.dtype == input.dtype or weight.dtype not in _NARROW:
        return weight
    return weight.float()


def probed(module) -> Recipe:
    """How Isobit computes what module computes; module stays as it is, and no hook of it runs."""
    recipe = _attributes(module)
    weight = recipe.weight and getattr(module, recipe.weight)
    device = torch.device("cpu") if weight is None or weight.is_meta else weight.device
    shape = getattr(module, "normalized_shape", (64,)) if weight is None else weight.shape
    if math.prod(shape) < _LEAST_WIDTH:
        raise Unsuited(f"has rows of {math.prod(shape)}, too narrow to see what it computes")
    with ExitStack() as surroundings:
        enter = surroundings.enter_context
        enter(torch.random.fork_rng([device] if device.type == "cuda" else []))
        enter(torch.autocast(device.type, enabled=False))
        enter(torch.inference_mode(False))
        enter(torch.enable_grad())
        twin = _twin(module, recipe, shape, device)
        rows = _rows(shape, getattr(module, recipe.eps), device)
        recipe = _of_these_values(twin, recipe, rows)
        if not _same_gradients(twin, recipe, rows):
            raise Unsuited("computes a norm, but another gradient")
        return replace(recipe, dtypes=tuple(_result_dtypes(twin, recipe, rows[:2])))


def _attributes(module):
    """Which of them hold weight, bias and epsilon."""
    inputs = list(inspect.signature(module.forward).parameters)
    if len(inputs) != 1:
        raise Unsuited(f"its forward takes {' and '.join(inputs) or 'nothing'}")
    if buffers := [name for name, _ in module.named_buffers()]:
        raise Unsuited(f"has buffers: {', '.join(buffers)}")
    names = [name for name, value in module._parameters.items() if value is not None]
    biases = [name for name in names if name in ("bias", "beta", "b")]
    weights = [name for name in names if name not in biases]
    if len(weights) > 1 or len(biases) > 1:
        raise Unsuited(f"its parameters are not a weight and a bias: {', '.join(names)}")
    epsilons = [
        name
        for name, value in vars(module).items()
        if re.search("(^|_)eps", name) and isinstance(value, float)
    ]
    if len(epsilons) != 1:
        raise Unsuited(f"has {len(epsilons) or 'no'} attributes that could be epsilon")
    return Recipe(*(weights or [None]), *(biases or [None]), *epsilons)


def _random(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), device="cpu")


def _twin(module, recipe, shape, device):
    twin = object.__new__(type(module))
    vars(twin).update(vars(module))
    values = {recipe.weight: _random(*shape, seed=1) / 4 + 0.5}
    values[recipe.bias] = _random(*shape, seed=2) / 4
    made = {name: nn.Parameter(value.to(device)) for name, value in values.items() if name}
    vars(twin)["_parameters"] = module._parameters | made
    return twin


def _rows(shape, eps, device):
    """Near epsilon too, where it matters, and far from zero, where the mean does."""
    least = eps**0.5 or 1e-3
    scales = torch.tensor([1, 1, 1e3, 30, least, least], device="cpu")
    offsets = torch.tensor([0, 2, 0, -3, 0, 1], device="cpu")
    scales, offsets = (each.reshape(-1, *[1] * len(shape)) for each in (scales, offsets))
    return ((_random(6, *shape, seed=3) + offsets) * scales).to(device)


def _run(twin, input):
    """What the module's own forward gives, without its hooks."""
    try:
        result = type(twin).forward(twin, input)
    except Exception as error:
        lines = str(error).splitlines() or [""]
        raise Unsuited(
            f"its forward fails for {tuple(input.shape)}: {type(error).__name__}: {lines[0]}"
        ) from None
    if not (isinstance(result, torch.Tensor) and result.shape == input.shape):
        raise Unsuited("its result is not of the shape of its input")
    return result


def _near(ours, theirs, tolerance):
    ours, theirs = ours.detach().double(), theirs.detach().double()
    size, gap = (each.abs().amax(-1) for each in (ours, ours - theirs))
    return bool((gap <= tolerance * size).all())  # and not of NaN


def _of_these_values(twin, recipe, rows):
    forms = [
        replace(recipe, centered=centered, zero_centered=zero_centered)
        for centered, zero_centered in product((False, True), repeat=2)
        if (centered or not recipe.bias) and (recipe.weight or not zero_centered)
    ]
    shape = rows.shape[1:]
    for leading, training in product([(6,), (2, 3), (1, 2, 3)], (False, True)):
        input = rows.reshape(*leading, *shape)
        vars(twin)["training"] = training
        theirs = _run(twin, input)
        tolerance = _ROUNDINGS * torch.finfo(torch.float32).eps
        forms = [form for form in forms if _near(form(twin, input), theirs, tolerance)]
    if not forms:
        raise Unsuited("computes neither layer norm nor RMS norm")
    return forms[0]


def _same_gradients(twin, recipe, rows):
    wanted = [rows.clone().requires_grad_()]
    wanted += [getattr(twin, name) for name in (recipe.weight, recipe.bias) if name]
    result = _run(twin, wanted[0])
    # Along what resembles the result, the statistics' part of the gradient is as large as the rest.
    along = result.detach() * (_random(*rows.shape, seed=4).to(rows.device) + 1)
    try:
        theirs = torch.autograd.grad(result, wanted, along)
    except RuntimeError:
        return False
    ours = torch.autograd.grad(recipe(twin, wanted[0]), wanted, along)
    return all(_near(*pair, _GRADIENT) for pair in zip(ours, theirs, strict=True))


def _result_dtypes(twin, recipe, rows):
    """((weight's, input's), result's), for what the module itself takes."""
    for weight, input in product(_SINGLE, repeat=2):
        vars(twin)["_parameters"] = {
            name: value if value is None else nn.Parameter(value.detach().to(weight))
            for name, value in twin._parameters.items()
        }
        try:
            result = _run(twin, rows.to(input))
        except Unsuited:
            continue
        if result.dtype not in _SINGLE:
            raise Unsuited(f"its result is of {result.dtype}")
        step = max(torch.finfo(dtype).eps for dtype in (weight, input, result.dtype))
        if not _near(recipe(twin, rows.to(input)), result, _ROUNDINGS * step):
            raise Unsuited(f"computes another norm for weights of {weight} and rows of {input}")
        yield (weight, input), result.dtype
