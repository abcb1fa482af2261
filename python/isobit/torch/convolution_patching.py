# SPDX-License-Identifier: Apache-2.0
"""Which modules of a model are convolutions, and which of Isobit's classes computes them."""

from inspect import getattr_static

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from isobit.torch import convolutions, linear_patching
from isobit.torch.probing import Unsuited

SWAPS = {
    nn.Conv1d: convolutions.Conv1d,
    nn.Conv2d: convolutions.Conv2d,
    nn.ConvTranspose1d: convolutions.ConvTranspose1d,
    nn.ConvTranspose2d: convolutions.ConvTranspose2d,
}

# As PyTorch has them; others may exchange them later.
_COMPUTING = {
    kind: {
        name: getattr_static(kind, name)
        for name in ("forward", "_conv_forward")
        if hasattr(kind, name)
    }
    for kind in SWAPS
}

_OF_THREE_DIMENSIONS = (nn.Conv3d, nn.ConvTranspose3d)


def is_convolution(module):
    """By its class, whatever its name is."""
    return isinstance(module, (*SWAPS, *_OF_THREE_DIMENSIONS))


def called_so(module):
    """By its name alone, with weights of its own: of these the report tells why they stay."""
    return linear_patching.called(module, "conv") and not linear_patching.is_linear(module)


def replacement(module):
    """The class of Isobit's that takes the place of PyTorch's."""
    original = parametrize.type_before_parametrizations(module)
    if isinstance(module, LazyModuleMixin):
        raise Unsuited(linear_patching.LAZY)
    if isinstance(module, _OF_THREE_DIMENSIONS):
        raise Unsuited("is of three dimensions; Isobit computes those of one and two")
    for kind, computing in _COMPUTING.items():
        if not isinstance(module, kind):
            continue
        for name, function in computing.items():
            if getattr_static(original, name) is not function:
                raise Unsuited(f"{original.__name__} has a {name} of its own")
            if name in vars(module):
                raise Unsuited(f"has a {name} of its own, set on the module")
        return SWAPS[kind]
    if hasattr(module, "_packed_params"):
        raise Unsuited("its weights are quantised")
    raise Unsuited(f"{original.__name__} is none of torch.nn's convolutions")
