# SPDX-License-Identifier: Apache-2.0
"""Which modules of a model normalise channels, and which of Isobit's classes computes them."""

from inspect import getattr_static

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from isobit.torch import channel_norm_modules as ours
from isobit.torch import linear_patching
from isobit.torch.probing import Unsuited

SWAPS = {
    nn.BatchNorm1d: ours.BatchNorm1d,
    nn.BatchNorm2d: ours.BatchNorm2d,
    nn.BatchNorm3d: ours.BatchNorm3d,
    nn.GroupNorm: ours.GroupNorm,
    nn.InstanceNorm1d: ours.InstanceNorm1d,
    nn.InstanceNorm2d: ours.InstanceNorm2d,
    nn.InstanceNorm3d: ours.InstanceNorm3d,
}

# As PyTorch has them; others may exchange them later.
_COMPUTING = {
    kind: {
        name: getattr_static(kind, name)
        for name in ("forward", "_apply_instance_norm")
        if hasattr(kind, name)
    }
    for kind in SWAPS
}

_KINDS = (
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.GroupNorm,
)


def is_channel_norm(module):
    """By its class, whatever its name is."""
    return isinstance(module, _KINDS)


def replacement(module):
    """The class of Isobit's that takes the place of PyTorch's."""
    original = parametrize.type_before_parametrizations(module)
    if isinstance(module, LazyModuleMixin):
        raise Unsuited(linear_patching.LAZY)
    if isinstance(module, nn.SyncBatchNorm):
        raise Unsuited("adds up statistics over processes, in an order of its own")
    for kind, computing in _COMPUTING.items():
        if not isinstance(module, kind):
            continue
        for name, function in computing.items():
            if getattr_static(original, name) is not function:
                raise Unsuited(f"{original.__name__} has a {name} of its own")
            if name in vars(module):
                raise Unsuited(f"has a {name} of its own, set on the module")
        return SWAPS[kind]
    raise Unsuited(f"{original.__name__} is none of torch.nn's norms of channels")
