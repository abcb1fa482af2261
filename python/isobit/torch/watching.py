# SPDX-License-Identifier: Apache-2.0
"""Sees every operator that runs, forward and backward, and tells where the model called it."""

import os
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode, _push_mode
from torch.utils._pytree import tree_leaves

import isobit
from isobit.torch import promises
from isobit.torch.interception import Interception

_LIBRARIES = tuple(f"{Path(each.__file__).parent}{os.sep}" for each in (torch, isobit))
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = f"{os.sep}site-packages{os.sep}"
_NODES_OF_LEAVES = 2**64 - 1  # the sequence number of a node that adds to a parameter's gradient


class Unreproducible(RuntimeError):
    """A model that was converted with strict=True met an operation whose bits nobody promises."""


class Site(NamedTuple):
    """Where an operation was called. module: the name of the innermost module of the model. place:
    the line, in neither PyTorch nor Isobit."""

    module: str
    place: str

    def __str__(self):
        return f"{self.place or 'an unknown place'} in {self.module or 'the model'}"


class Remaining(NamedTuple):
    """An operation that stays PyTorch's. kind: why its bits may differ. backward: whether it is
    part of the derivative of what was called there."""

    operation: str
    kind: str
    module: str
    place: str
    backward: bool

    def __str__(self):
        if not self.place:
            return f"{self.operation}, {self.kind}"
        derivative = ", backward" if self.backward else ""
        return f"{self.operation} ({self.kind}) at {Site(self.module, self.place)}{derivative}"


class Replaced(NamedTuple):
    """A function of PyTorch's that Isobit computed."""

    function: str
    module: str
    place: str


@cache
def _is_inside(file):
    """Whether a line of it is no call site."""
    if file.startswith(_LIBRARIES) or file.startswith("<frozen"):
        return True
    return file.startswith(_STANDARD) and _INSTALLED not in file


@cache
def _shown(file):
    """A file's name, from where Python looks for modules or from the current folder."""
    folders = [
        each for each in (*sys.path, str(Path.cwd())) if each and file.startswith(each + os.sep)
    ]
    return os.path.relpath(file, max(folders, key=len)) if folders else file


def _first_argument(frame):
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


_INTERCEPTING = Interception.__torch_function__.__code__


def call_site(names):
    """(site, function of PyTorch's in whose place Isobit's runs, or None, whether a module calls).
    names: of modules by their id."""
    frame, module, place, asked = sys._getframe(1), None, None, None
    while frame is not None and (module is None or place is None):
        code = frame.f_code
        if place is None and code is _INTERCEPTING and frame.f_locals["ours"] is not None:
            asked = frame.f_locals["function"]
        elif place is None and not _is_inside(code.co_filename):
            place = f"{_shown(code.co_filename)}:{frame.f_lineno}"
        if module is None:
            owner = _first_argument(frame)
            module = names.get(id(owner)) if isinstance(owner, nn.Module) else None
        frame = frame.f_back
    return Site(module or "", place or ""), asked, module is not None


def module_names(model):
    return {id(module): name for name, module in model.named_modules()}


class Watcher(TorchDispatchMode):
    """Notes what PyTorch promises nothing of, and what Isobit computes in the place of a function.

    names: of modules by their id. remaining, functions: {what: calls}, which grow. refuses: raise
    Unreproducible instead of noting."""

    def __init__(self, names, remaining, functions, refuses=False):
        super().__init__()
        self.names, self.remaining, self.functions = names, remaining, functions
        self.refuses = refuses
        self._sites = {}  # by the sequence number of the node that computes the derivative

    def _site(self):
        """(site, asked, whether in backward)"""
        node = torch._C._current_autograd_node()
        if node is not None and (site := self._sites.get(node._sequence_nr())) is not None:
            return site, None, True
        site, asked, _ = call_site(self.names)
        if node is None:  # the node of this operator is there already, and has the last number
            self._sites.setdefault(torch.autograd._get_sequence_nr() - 1, site)
        return site, asked, node is not None

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        site, asked, backward = self._site()
        if asked is not None and function.namespace == "isobit":
            _count(self.functions, Replaced(resolve_name(asked) or asked.__name__, *site))
        if kind := promises.doubt(function, args, kwargs, result):
            found = Remaining(str(function.overloadpacket), kind, *site, backward)
            if self.refuses:
                raise Unreproducible(
                    f"convert: {found}: PyTorch promises no bits of it; strict=True refuses it"
                )
            _count(self.remaining, found)
        return result


def _count(counts, what):
    counts[what] = counts.get(what, 0) + 1


class Backward(TorchFunctionMode):
    """Has a watcher see the derivatives of all that is called inside, whenever and by whomever they
    are asked for."""

    def __init__(self, watcher):
        super().__init__()
        self._watcher, self._known = watcher, set()
        self._begin = torch.autograd._get_sequence_nr()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.watch(result)
        return result

    def watch(self, results):
        """The nodes that lead to the results, of those made since this mode was."""
        leaves = tree_leaves(results)
        todo = [each.grad_fn for each in leaves if isinstance(each, torch.Tensor)]
        while todo:
            node = todo.pop()
            number = _NODES_OF_LEAVES if node is None else node._sequence_nr()
            if number == _NODES_OF_LEAVES or number < self._begin or number in self._known:
                continue
            self._known.add(number)
            node.register_prehook(self._push)
            todo += [each for each, _ in node.next_functions]

    def _push(self, gradients):
        """The engine gives each node the modes of the call of backward, and takes away what was
        added."""
        _push_mode(self._watcher)
