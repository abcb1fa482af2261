# SPDX-License-Identifier: Apache-2.0
"""convert: a whole model's modules and functions become Isobit's, what stays PyTorch's is found out
and listed, or refused."""

import copy
import importlib
import re
import weakref
from abc import ABCMeta
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from typing import ClassVar

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils._pytree import tree_leaves

from isobit.torch import counterparts, patching
from isobit.torch.interception import Interception, intercept
from isobit.torch.patching import AbstractPatched, Patched, Report, Undoable, patched_class
from isobit.torch.watching import Backward, Remaining, Watcher, module_names

_AN_OPTIMISER = "an optimiser"


# All that patch does where it is asked, but for what changes how norms and layers work together.
_EVERY_KIND = {
    name: True
    for name, parameter in signature(patching.patch).parameters.items()
    if parameter.default is False and name != "fuse"
}


def _is_intercepted():
    """Whether every function is Isobit's here already."""
    stack = torch.overrides._get_current_function_mode_stack()
    return any(type(mode) is Interception and mode.calls is counterparts.EVERY for mode in stack)


@dataclass(frozen=True)
class Converted:
    """How a class that calls PyTorch's functions is computed by Isobit's in their places. strict:
    and by nothing else whose bits nobody promises."""

    strict: bool = False
    renames: ClassVar = False  # transformers stores names of classes, and finds classes by them

    def members(self, original):
        theirs = original.forward

        @wraps(theirs)
        def forward(self, *args, **kwargs):
            if not torch.compiler.is_compiling() and _is_intercepted():
                return theirs(self, *args, **kwargs)
            with intercept(every=True):
                return theirs(self, *args, **kwargs)

        @wraps(theirs)
        def checked(self, *args, **kwargs):
            watcher = Watcher(module_names(self), {}, {}, refuses=True)
            backward = Backward(watcher)
            with watcher, backward:
                result = forward(self, *args, **kwargs)
            backward.watch(result)
            return result

        if self.strict:
            why = "isobit.torch.convert(strict=True) checks each operator, which eager code shows"
            forward_checked = torch.compiler.disable(checked, reason=why)
            return {"forward": forward_checked}
        return {"forward": forward}


def _calls_functions(module):
    """Whether its class was written by somebody who may call PyTorch's functions."""
    kind = parametrize.type_before_parametrizations(module)
    is_known = kind.__module__.split(".")[0] == "torch" or isinstance(kind, Patched)
    is_ours = kind.__module__.startswith("isobit.torch.")
    has_forward = kind.forward is not nn.Module.forward
    return has_forward and not (is_known or is_ours)


def _why_not(module):
    """Why the class of a module cannot be exchanged, or nothing."""
    kind = parametrize.type_before_parametrizations(module)
    if isinstance(module, torch.jit.ScriptModule):
        return "is scripted"
    if "forward" in vars(module):
        return "has a forward of its own, set on the module"
    if type(kind) not in (type, ABCMeta, Patched, AbstractPatched):
        return f"is of a class of the type {type(kind).__name__}"
    return ""


def _exchange(module, strict, changes):
    original = parametrize.type_before_parametrizations(module)
    made = patched_class(original, Converted(strict))
    module.__class__ = patching._exchanged(module, original, made)
    changes.append((weakref.ref(module), original, made))


def _is_converted(module):
    kind = parametrize.type_before_parametrizations(module)
    return isinstance(kind, Patched) and isinstance(kind._isobit[1], Converted)


def _counterpart(optimizer):
    """isobit.torch.optim's class that computes what the optimizer does, or nothing."""
    kind = type(optimizer)
    try:
        ours = getattr(importlib.import_module("isobit.torch.optim"), kind.__name__, None)
    except ModuleNotFoundError:
        return None
    return ours if kind is getattr(torch.optim, kind.__name__, None) else None


def _exchanged_optimizer(optimizer):
    """Ours with the parameters, the options and a copy of the state of the one that is given; or
    why there is none. One of ours stays what it is."""
    kind = type(optimizer)
    if kind.__module__ == "isobit.torch.optim":
        return optimizer, ""
    ours = _counterpart(optimizer)
    if ours is None:
        theirs = f"{kind.__module__}'s"
        return None, f"isobit.torch has no {kind.__name__} to compute what {theirs} does"
    groups = [dict(group) for group in optimizer.param_groups]
    try:
        made = ours(groups, lr=optimizer.param_groups[0]["lr"])
    except NotImplementedError as reason:
        return None, str(reason)
    made.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    made.defaults |= optimizer.defaults  # of the groups that are added later
    return made, ""


@dataclass(repr=False)
class Conversion(Undoable):
    """What convert did, and what it left.

    model: what was converted. patched: the Report of its modules. skipped: modules whose calls of
    functions stay PyTorch's, and why. optimizer: Isobit's, None if none was given or it has none
    such. functions, remaining: what Isobit computes in the place of functions, and what PyTorch
    still computes without a promise, each with how often it was met while somebody was watching.

    with conversion: ... also has the calls of the block, a loss for instance, computed by Isobit,
    and restores everything at its end.
    """

    model: nn.Module
    patched: Report
    optimizer: torch.optim.Optimizer | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    functions: dict = field(default_factory=dict)
    remaining: dict = field(default_factory=dict)
    watched: bool = False
    _changes: list = field(default_factory=list, init=False)
    _modes: list = field(default_factory=list, init=False)

    def restore(self):
        """Gives the modules and functions back. The optimizer that was given has its parameters
        still, and not the state that Isobit's has gathered since."""
        while self._changes:
            reference, original, ours = self._changes.pop()
            module = reference()
            if module is not None and (back := patching._exchanged(module, ours, original)):
                module.__class__ = back
        self.patched.restore()

    def __enter__(self):
        mode = intercept(every=True)
        mode.__enter__()
        self._modes.append(mode)
        return self

    def __exit__(self, *what):
        self._modes.pop().__exit__(*what)
        self.restore()

    @contextmanager
    def watching(self):
        """Notes in `functions` and `remaining` what runs inside in this thread: calls of the model,
        backward, a loss, a step of an optimizer."""
        with Watcher(module_names(self.model), self.remaining, self.functions):
            yield self
        self.watched = True

    def run(self, *args, **kwargs):
        """Calls the model with these, and asks for the gradients of its results, while watching.
        Parameters, gradients, buffers and PyTorch's generators stay as they are."""
        buffers = [(each, each.clone()) for each in self.model.buffers()]
        leaves = [each for each in self.model.parameters() if each.requires_grad]
        leaves += [
            each
            for each in tree_leaves((args, kwargs))
            if isinstance(each, torch.Tensor) and each.requires_grad
        ]
        records = not torch.is_inference_mode_enabled()
        with torch.random.fork_rng(), torch.set_grad_enabled(records), self.watching():
            results = [
                each
                for each in tree_leaves(self.model(*args, **kwargs))
                if isinstance(each, torch.Tensor) and each.requires_grad
            ]
            if results and leaves:
                along = [torch.ones_like(each) for each in results]
                torch.autograd.grad(results, leaves, along, allow_unused=True)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        return self

    def __repr__(self):
        lines = [repr(self.patched)]
        if self.functions:
            lines += ["and in the place of functions", *_in_lines(self.functions, _function)]
        lines += [f"  {name or '(the model)'}: {why}" for name, why in self.skipped.items()]
        if self.remaining:
            lines += ["What PyTorch computes without a promise", *_in_lines(self.remaining, str)]
        elif self.watched:
            lines.append("Nothing that was watched is left without a promise")
        if not self.watched:
            lines.append("What else PyTorch computes shows once the model was watched: run(...)")
        return "\n".join(lines)


def _function(replaced):
    return f"{replaced.function} at {replaced.place} in {replaced.module or 'the model'}"


def _in_lines(counts, words):
    """A line for all that differ in the numbers of their layers."""
    alike = {}
    for what, calls in counts.items():
        module = re.sub(r"\b\d+\b", "*", what.module)
        alike.setdefault(what._replace(module=module), []).append((what, calls))
    for several, found in alike.items():
        line = words(several if len(found) > 1 else found[0][0])
        calls = sum(calls for _, calls in found)
        yield f"  {line}" + (f", {calls} calls" if calls > 1 else "")


def convert(model, optimizer=None, *, strict=False) -> Conversion:
    """Makes a model's modules and the functions that it calls Isobit's, and says what stays.

    Modules become Isobit's as patch makes them with all its options but fuse. Functions of torch
    and torch.nn.functional, and methods of tensors, that isobit.torch has too are Isobit's wherever
    the forward of the model, or of a module in it, calls them.

    The report finds out what remains when it watches: report.run(inputs) calls the model once,
    forward and backward; `with report.watching(): ...` sees whatever runs inside. It lists every
    operator of whose bits PyTorch promises nothing, by module and line.

    optimizer: one of torch.optim; report.optimizer is that of isobit.torch.optim with its
    parameters, options and state. If there is none, it is listed as remaining.

    strict: the model's forward, and the backward of what it returned, raise Unreproducible at the
    first such operator. This takes time, and stays eager in compiled code.

    with convert(model): ... has the block's own calls computed by Isobit too, and restores the
    model at its end; report.restore() does so at any time.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"convert: model must be a torch.nn.Module; it is {type(model).__name__}")
    if not (optimizer is None or isinstance(optimizer, torch.optim.Optimizer)):
        kind = type(optimizer).__name__
        raise TypeError(f"convert: optimizer must be a torch.optim.Optimizer; it is {kind}")
    if _is_converted(model):
        raise ValueError("convert: model is converted already; restore() of its report first")
    if reason := _why_not(model):
        raise ValueError(f"convert: model {reason}")
    made, reason = (None, "") if optimizer is None else _exchanged_optimizer(optimizer)
    remains = None
    if reason:
        kind = type(optimizer)
        remains = Remaining(f"{kind.__module__}.{kind.__name__}", _AN_OPTIMISER, "", "", False)
        if strict:
            raise ValueError(f"convert: {reason}; strict=True refuses it")
    report = Conversion(model, patching.patch(model, **_EVERY_KIND), made)
    if remains is not None:
        report.remaining[remains] = 1
    for name, module in model.named_modules():
        if module is model:
            _exchange(module, strict, report._changes)
        elif _calls_functions(module) and not _is_converted(module):
            if reason := _why_not(module):
                report.skipped[name] = reason
            else:
                _exchange(module, False, report._changes)
    return report
