# SPDX-License-Identifier: Apache-2.0
"""Puts Isobit's norms into models that were written with others, and takes them out again."""

import copyreg
import re
import sys
import weakref
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import nn
from torch.nn.utils import parametrize

from isobit.torch import rotary_patching
from isobit.torch.modules import LayerNorm, RMSNorm
from isobit.torch.probing import Unsuited, probed

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
DEVICES = ("cpu", "cuda", "meta")

_SWAPS = {nn.LayerNorm: LayerNorm, nn.RMSNorm: RMSNorm}

_OTHER_NORMS = (
    (nn.modules.batchnorm._BatchNorm, "BatchNorm normalises over the batch"),
    (nn.modules.instancenorm._InstanceNorm, "InstanceNorm normalises a channel over its positions"),
    (nn.GroupNorm, "GroupNorm normalises groups of channels over their positions"),
    ((nn.LocalResponseNorm, nn.CrossMapLRN2d), "a response norm looks at neighbouring channels"),
)


class Undoable:
    """What `with` undoes at its end, unless restore() did."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.restore()


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
    """What patch did. replaced: names and classes. skipped: names and reasons. rotary: Python's
    modules whose rotary function was exchanged."""

    replaced: dict[str, type] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    rotary: list[str] = field(default_factory=list)
    _changes: list = field(default_factory=list, init=False)
    _functions: list = field(default_factory=list, init=False)

    def restore(self):
        """Gives the modules their classes back, whatever else was patched or restored since."""
        while self._changes:
            reference, original, ours = self._changes.pop()
            module = reference()
            if module is not None and (back := _exchanged(module, ours, original)):
                module.__class__ = back
        rotary_patching.restore(self._functions)
        _forget_compiled()

    def __repr__(self):
        count = len(self.replaced)
        lines = [f"Isobit computes {count} norm{'' if count == 1 else 's'}"]
        lines += _listed({name: made.__name__ for name, made in self.replaced.items()})
        lines += [f"  {name}.{rotary_patching.NAME}: apply_rotary" for name in self.rotary]
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


def patch(model, *, rotary=False) -> Report:
    """Replaces the norms of a model by Isobit's where they are, and says which.

    Modules keep their identity, parameters, hooks and names in state_dict; their class changes, to
    isobit.torch.LayerNorm or RMSNorm or one derived from their own. A module of another class than
    PyTorch's is replaced if its forward, run on a few rows, gives Isobit's values and gradients.

    rotary: also the function by which transformers' models of Llama's family turn queries and keys,
    for every model of the same classes; the cosines and sines stay the model's.

    with patch(model): ... restores the classes at its end, report.restore() at any time.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"patch: model must be a torch.nn.Module; it is {type(model).__name__}")
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
    if rotary:
        report.rotary, refused, report._functions = rotary_patching.exchange(model)
        report.skipped |= refused
    _forget_compiled()
    _note_fast_paths(model, report)
    return report


def _forget_compiled():
    """Dynamo of PyTorch 2.11 does not see that a module's class has changed, that of 2.13 does."""
    if "torch._dynamo" in sys.modules and torch.__version__ < "2.13":
        torch.compiler.reset()


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
    return patched_class(original, probed(module))


def _check_parameter(name, parameter):
    if type(parameter) is not nn.Parameter:
        raise Unsuited(f"{name} is of the type {type(parameter).__name__}")
    if parameter.dtype not in DTYPES:
        raise Unsuited(f"{name} is of {parameter.dtype}")
    if parameter.device.type not in DEVICES:
        raise Unsuited(f"{name} is on {parameter.device}, where Isobit has no kernels")
