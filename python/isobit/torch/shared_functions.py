# SPDX-License-Identifier: Apache-2.0
"""Functions of other packages' modules that patched models share: each stands exchanged until the
last of these models is restored."""

import sys
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class _Exchange:
    original: Callable
    ours: Callable
    models: int = 0  # that need it


_exchanges = {}  # by (the name of Python's module, the function's name)


def modules_of(model):
    """The names of Python's modules that define the classes of the model's parts."""
    return dict.fromkeys(type(each).__module__ for each in model.modules())


def exchange(source, name, make, difference):
    """Puts make(original) in the place of the function, once for all models. Returns whether there
    is such a function, and why it is left alone: what difference(original) tells."""
    place, original = (source, name), getattr(sys.modules.get(source), name, None)
    if original is None:
        return False, ""
    if place not in _exchanges or original is not _exchanges[place].ours:
        if reason := difference(original):
            return True, reason
        _exchanges[place] = _Exchange(original, make(original))
        setattr(sys.modules[source], name, _exchanges[place].ours)
    _exchanges[place].models += 1
    return True, ""


def restore(places):
    """Undoes an exchange of each (source, name), which are then no longer listed."""
    while places:
        source, name = place = places.pop()
        standing = _exchanges[place]
        standing.models -= 1
        if not standing.models:
            del _exchanges[place]
            if getattr(sys.modules[source], name) is standing.ours:
                setattr(sys.modules[source], name, standing.original)
