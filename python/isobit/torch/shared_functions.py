# SPDX-License-Identifier: Apache-2.0
"""Functions of other packages' modules that patched models share: each stands exchanged until the
last of these models is restored."""

import sys
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Exchange:
    source: str  # the name of Python's module
    name: str
    original: Callable
    ours: Callable
    models: int = 0  # that need it


_standing = {}  # the last exchange by (source, name)


def modules_of(model):
    """The names of Python's modules that define the classes of the model's parts."""
    return dict.fromkeys(type(each).__module__ for each in model.modules())


def exchange(source, name, make, difference):
    """Puts make(original) in the place of the function, once for all models. Returns (the exchange,
    None if there is none; why the function is left alone: what difference(original) tells)."""
    original, standing = getattr(sys.modules.get(source), name, None), _standing.get((source, name))
    if original is None:
        return None, ""
    if standing is None or original is not standing.ours:
        if reason := difference(original):
            return None, reason
        standing = _standing[source, name] = Exchange(source, name, original, make(original))
        setattr(sys.modules[source], name, standing.ours)
    standing.models += 1
    return standing, ""


def restore(exchanges):
    """Undoes one model's part in each of them; they are then no longer listed."""
    while exchanges:
        each = exchanges.pop()
        each.models -= 1
        if each.models:
            continue
        if _standing.get((each.source, each.name)) is each:
            del _standing[each.source, each.name]
        if getattr(sys.modules[each.source], each.name) is each.ours:
            setattr(sys.modules[each.source], each.name, each.original)
