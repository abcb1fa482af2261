# SPDX-License-Identifier: Apache-2.0
"""Puts Isobit's norms into what was written for PyTorch's: into a model, into calls of functions,
into the whole process. Each can be undone."""

import copyreg
import inspect
import math
import re
import threading
import weakref
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode

from isobit.torch import functional
from isobit.torch.modules import LayerNorm, RMSNorm

_NARROW = (torch.float16, torch.bfloat16)
_SINGLE = (torch.float32, *_NARROW)  # computed in single precision
_DTYPES = (*_SINGLE, torch.float64)
_DEVICES = ("cpu", "cuda", "meta")

_SWAPS = {nn.LayerNorm: LayerNorm, nn.RMSNorm: RMSNorm}

_OTHER_NORMS = (
    (nn.modules.batchnorm._BatchNorm, "BatchNorm normalises over the batch"),
    (nn.modules.instancenorm._InstanceNorm, "InstanceNorm normalises a channel over its positions"),
    (nn.GroupNorm, "GroupNorm normalises groups of channels over their positions"),
    ((nn.LocalResponseNorm, nn.CrossMapLRN2d), "a response norm looks at neighbouring channels"),
)


class Unsuited(Exception):
    """Why a module stays as it is."""


class Undoable:
    """What `with` undoes at its end, unless restore() did."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.restore()


# Models


@dataclass(frozen=True)
class Recipe:
    """How a norm of somebody else's class is computed: by which function, and from which of its
    attributes. dtypes: of the result, for those of weight and input."""

    weight: str | None
    bias: str | None
    eps: str
    centred: bool = False
    zero_centered: bool = False
    dtypes: tuple = ()

    def __call__(self, module, input, out_dtype=None):
        weight, bias = (name and getattr(module, name) for name in (self.weight, self.bias))
        shape = input.shape[-1:] if weight is None else weight.shape
        weights = [_beside(input, each) for each in (weight, bias)[: 1 + self.centred]]
        norm = functional.layer_norm if self.centred else functional.rms_norm
        return norm(
            *(input, shape, *weights, getattr(module, self.eps)),
            zero_centered=self.zero_centered,
            out_dtype=out_dtype,
        )

    def result_dtype(self, module, input):
        """Of module's own forward, None where it was not tried."""
        weight_dtype = getattr(module, self.weight).dtype if self.weight else input.dtype
        return self._dtypes.get((weight_dtype, input.dtype))

    @cached_property
    def _dtypes(self):
        return dict(self.dtypes)


def _beside(input, weight):
    """The weight in a type that may stand beside the input's, not a bit changed."""
    return weight if weight is None or weight.dtype == input.dtype else weight.float()


class Patched(type):
    """The type of classes that patch makes, which pickle cannot find under a name."""


@cache
def patched_class(original, recipe):
    def forward(self, *args, **kwargs):
        (input,) = (*args, *kwargs.values())  # whatever original calls it
        return recipe(self, input, recipe.result_dtype(self, input))

    members = {
        "__doc__": f"{original.__name__}, computed by Isobit.",
        "__module__": __name__,
        "forward": forward,
        "_isobit": (original, recipe),
    }
    return Patched("Isobit" + original.__name__, (original,), members)


copyreg.pickle(Patched, lambda made: (patched_class, made._isobit))


def _exchanged(module, old, new):
    """module's class with `new` in the place of `old`, or nothing if it has gone. PyTorch derives a
    class for each module with parametrizations."""
    actual = type(module)
    if actual is old:
        return new
    if not parametrize.is_parametrized(module) or actual.__bases__ != (old,):
        return None
    return type(actual.__name__, (new,), dict(vars(actual)))


@dataclass(repr=False)
class Report(Undoable):
    """What patch did. replaced: names and classes. skipped: names and reasons."""

    replaced: dict[str, type] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    _changes: list = field(default_factory=list)

    def restore(self):
        """Gives the modules their classes back, whatever else was patched or restored since."""
        while self._changes:
            reference, original, ours = self._changes.pop()
            module = reference()
            if module is not None and (back := _exchanged(module, ours, original)):
                module.__class__ = back

    def __repr__(self):
        count = len(self.replaced)
        lines = [f"Isobit computes {count} norm{'' if count == 1 else 's'}"]
        lines += _listed({name: made.__name__ for name, made in self.replaced.items()})
        if self.skipped:
            lines += ["and leaves alone", *_listed(self.skipped)]
        return "\n".join(lines)


def _listed(entries):
    """A line for all names that differ in the numbers of their layers."""
    alike = {}
    for name, what in entries.items():
        alike.setdefault((re.sub(r"\b\d+\b", "*", name), what), []).append(name)
    for (pattern, what), names in alike.items():
        several = f"{pattern} ({len(names)})"
        yield f"  {several if len(names) > 1 else names[0] or '(the model)'}: {what}"


def patch(model) -> Report:
    """Replaces the norms of a model by Isobit's where they are, and says which.

    Modules keep their identity, parameters, hooks and names in state_dict; their class changes, to
    isobit.torch.LayerNorm or RMSNorm or one derived from their own. A module of another class than
    PyTorch's is replaced if its forward, run on a few rows, gives Isobit's values and gradients.

    with patch(model): ... restores the classes at its end, report.restore() at any time.
    """
    report = Report()
    names = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if not _is_norm(module) or ".parametrizations." in f".{name}":
            continue
        if module in names:
            report.skipped[name] = f"is {names[module]}"
            continue
        names[module] = name
        try:
            made = _replacement(module)
        except Unsuited as reason:
            report.skipped[name] = str(reason)
            continue
        original = parametrize.type_before_parametrizations(module)
        module.__class__ = _exchanged(module, original, made)
        report.replaced[name] = made
        report._changes.append((weakref.ref(module), original, made))
    _note_fast_paths(model, report)
    return report


def _is_norm(module):
    """By its class or its name; a module made of others only contains norms."""
    name = getattr(module, "original_name", type(module).__name__)  # the former of a script
    called_so = "norm" in name.lower() or isinstance(module, tuple(_SWAPS))
    return called_so and {child for child, _ in module.named_children()} <= {"parametrizations"}


def _note_fast_paths(model, report):
    for name, module in model.named_modules():
        norms = {f"{name}.norm1".lstrip("."), f"{name}.norm2".lstrip(".")}
        if isinstance(module, nn.TransformerEncoderLayer) and norms & report.replaced.keys():
            report.skipped[name] = (
                "in evaluation without gradients, PyTorch computes the whole layer without its "
                "norms' forward; torch.backends.mha.set_fastpath_enabled(False) prevents it"
            )


def _replacement(module):
    """The class that computes what module computes."""
    for kinds, reason in _OTHER_NORMS:
        if isinstance(module, kinds):
            raise Unsuited(reason)
    if isinstance(module, torch.jit.ScriptModule):
        raise Unsuited("is scripted")
    if isinstance(module, (LayerNorm, RMSNorm)) or isinstance(type(module), Patched):
        raise Unsuited("is Isobit's already")
    if "forward" in vars(module):
        raise Unsuited("has a forward of its own, set on the module")
    for name, parameter in module.named_parameters():
        _check_parameter(name, parameter)
    original = parametrize.type_before_parametrizations(module)
    if original in _SWAPS:
        return _SWAPS[original]
    if parametrize.is_parametrized(module):
        raise Unsuited("has parametrizations; they can be registered after patch")
    if type(original) is not type:
        raise Unsuited(f"its class is of the type {type(original).__name__}")
    return patched_class(original, _probed(module))


def _check_parameter(name, parameter):
    if type(parameter) is not nn.Parameter:
        raise Unsuited(f"{name} is of the type {type(parameter).__name__}")
    if parameter.dtype not in _DTYPES:
        raise Unsuited(f"{name} is of {parameter.dtype}")
    if parameter.device.type not in _DEVICES:
        raise Unsuited(f"{name} is on {parameter.device}, where Isobit has no kernels")


# What a module computes. Its forward runs on a twin with random weights: without hooks, and nothing
# of the module itself changes.

_ROUNDINGS = 16  # a row's results differ by fewer, of its largest; a variance over N - 1 by more
_GRADIENT = 1e-3  # of a row's largest; where statistics are taken for constants it differs by 1
_LEAST_WIDTH = 4  # the gradient of two centred elements is rounding errors alone


def _probed(module):
    recipe = _attributes(module)
    weight = recipe.weight and getattr(module, recipe.weight)
    device = torch.device("cpu") if weight is None or weight.is_meta else weight.device
    shape = getattr(module, "normalized_shape", (64,)) if weight is None else weight.shape
    if math.prod(shape) < _LEAST_WIDTH:
        raise Unsuited(f"has rows of {math.prod(shape)}, too narrow to see what it computes")
    twin = _twin(module, recipe, shape, device)
    with ExitStack() as surroundings:
        enter = surroundings.enter_context
        enter(torch.random.fork_rng([device] if device.type == "cuda" else []))
        enter(torch.autocast(device.type, enabled=False))
        enter(torch.inference_mode(False))
        enter(torch.enable_grad())
        rows = _rows(shape, getattr(module, recipe.eps), device)
        recipe = _of_these_values(twin, recipe, rows)
        if not _same_gradients(twin, recipe, rows):
            raise Unsuited("computes a norm, but another gradient")
        return replace(recipe, dtypes=tuple(_result_dtypes(twin, recipe, rows[:2])))


def _attributes(module):
    """Which of them hold weight, bias and epsilon."""
    _, *more = inspect.signature(module.forward).parameters
    if more:
        raise Unsuited(f"its forward takes more than the input: {', '.join(more)}")
    if buffers := [name for name, _ in module.named_buffers()]:
        raise Unsuited(f"has buffers: {', '.join(buffers)}")
    names = [name for name, value in module._parameters.items() if value is not None]
    biases = [name for name in names if name in ("bias", "beta", "b")]
    weights = [name for name in names if name not in biases]
    if len(weights) > 1 or len(biases) > 1:
        raise Unsuited(f"its parameters are not a weight and a bias: {', '.join(names)}")
    epsilons = [
        name for name, value in vars(module).items() if "eps" in name and isinstance(value, float)
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
    scales = torch.tensor([1, 1, 1e3, 30, least, least]).reshape(-1, *[1] * len(shape))
    offsets = torch.tensor([0, 2, 0, -3, 0, 1]).reshape(scales.shape)
    return ((_random(6, *shape, seed=3) + offsets) * scales).to(device)


def _run(twin, input):
    """What module's own forward gives."""
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
        replace(recipe, centred=centred, zero_centered=zero_centered)
        for centred, zero_centered in product((False, True), repeat=2)
        if (centred or not recipe.bias) and (recipe.weight or not zero_centered)
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
    # Along the result itself the statistics' part of the gradient is as large as the rest.
    along = result.detach()
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
        tolerance = _ROUNDINGS * max(
            torch.finfo(each).eps for each in (weight, input, result.dtype)
        )
        if not _near(recipe(twin, rows.to(input)), result, tolerance):
            raise Unsuited(f"computes another norm for weights of {weight} and rows of {input}")
        yield (weight, input), result.dtype


# Calls of functions


def _computes(input, *weights):
    return (
        input.dtype in _DTYPES
        and input.device.type in _DEVICES
        and input.layout == torch.strided
        and not input.is_nested
        and all(each is None or each.dtype in (input.dtype, torch.float32) for each in weights)
    )


def _layer_norm(
    input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True
):  # the signature of both of PyTorch's
    if _computes(input, weight, bias):
        return functional.layer_norm(input, normalized_shape, weight, bias, eps)
    return torch.layer_norm(input, normalized_shape, weight, bias, eps, cudnn_enable)


def _rms_norm(input, normalized_shape, weight=None, eps=None):
    if _computes(input, weight):
        return functional.rms_norm(input, normalized_shape, weight, eps)
    return torch.rms_norm(input, normalized_shape, weight, eps)


_CALLS = {
    torch.layer_norm: _layer_norm,
    torch.rms_norm: _rms_norm,
    nn.functional.layer_norm: _layer_norm,
    nn.functional.rms_norm: _rms_norm,
}


class _Interception(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        # A subclass of Tensor knows PyTorch's functions, not ours.
        if all(each in (torch.Tensor, nn.Parameter) for each in types):
            function = _CALLS.get(function, function)
        return function(*args, **(kwargs or {}))


def intercept():
    """with intercept(): calls of layer_norm and rms_norm, of torch and torch.nn.functional, are
    Isobit's in this thread, whoever makes them in Python. PyTorch keeps those with tensors that
    Isobit does not compute: other dtypes and devices, nested, sparse and subclasses of Tensor.

    What torch.compile compiles inside is Isobit's too, and is compiled again outside.
    """
    return _Interception()


# The process

_lock = threading.Lock()
_overrides = set()


class Override(Undoable):
    """A reason for the override to be on."""

    def __init__(self):
        with _lock:
            if not _overrides:
                torch.ops.isobit._override_aten(True)
            _overrides.add(self)

    def restore(self):
        with _lock:
            if _overrides == {self}:
                torch.ops.isobit._override_aten(False)
            _overrides.discard(self)


def override() -> Override:
    """Layer norm of CPU tensors is Isobit's in the whole process, forward and backward, until
    restore() of the result, or of the last result if there were more calls; or inside of `with`.

    It covers what comes down to aten::native_layer_norm: nn.LayerNorm, both layer_norm functions,
    PyTorch's own transformer layers, TorchScript, C++. It does not cover RMS norm, other devices,
    and what torch.compile compiles, which computes its norms itself. Second derivatives are
    PyTorch's.

    PyTorch warns once that an operator was replaced. Its table of operators is not locked against
    callers: do this, and restore, while no other thread computes layer norms.
    """
    return Override()
