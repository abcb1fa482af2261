# SPDX-License-Identifier: Apache-2.0
"""Which further modules of a model are torch.nn's, and which of Isobit's classes computes them."""

from inspect import getattr_static

from torch.nn.utils import parametrize

from isobit.torch import counterparts
from isobit.torch.probing import Unsuited

# As PyTorch has them; others may exchange them later.
_FORWARDS = {kind: getattr_static(kind, "forward") for kind in counterparts.MODULES}


def is_other(module):
    return isinstance(module, tuple(counterparts.MODULES))


def replacement(module):
    """The class of Isobit's that takes the place of PyTorch's."""
    original = parametrize.type_before_parametrizations(module)
    (kind,) = (each for each in _FORWARDS if isinstance(module, each))
    if getattr_static(original, "forward") is not _FORWARDS[kind]:
        raise Unsuited(f"{original.__name__} has a forward of its own")
    return counterparts.MODULES[kind]
