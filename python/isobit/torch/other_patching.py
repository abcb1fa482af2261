# SPDX-License-Identifier: Apache-2.0
"""Which further modules of a model are torch.nn's, and which of Isobit's classes computes them; and
somebody else's modules that compute gelu."""

from dataclasses import dataclass
from inspect import getattr_static

import torch
from torch.nn.utils import parametrize

from isobit.torch import activation_functions, counterparts
from isobit.torch.probing import Unsuited, class_name

# As PyTorch has them; others may exchange them later.
_FORWARDS = {kind: getattr_static(kind, "forward") for kind in counterparts.MODULES}


def is_other(module):
    return isinstance(module, tuple(counterparts.MODULES))


def replacement(module):
    """The class of Isobit's that takes the place of PyTorch's."""
    if called_gelu(module):
        return _gelu_of(module)
    original = parametrize.type_before_parametrizations(module)
    (kind,) = (each for each in _FORWARDS if isinstance(module, each))
    if getattr_static(original, "forward") is not _FORWARDS[kind]:
        raise Unsuited(f"{original.__name__} has a forward of its own")
    ours = counterparts.MODULES[kind]
    reason = ours.unsuited(module) if hasattr(ours, "unsuited") else None
    if reason is not None:
        raise Unsuited(reason)
    return ours


@dataclass(frozen=True)
class Gelu:
    """How somebody else's module is computed. approximate: as gelu has it."""

    approximate: str

    def forward(self, _, input):
        """Of a module in the place of the one that was tried."""
        return self(input)

    def __call__(self, input):
        return activation_functions.gelu(input, approximate=self.approximate)


def called_gelu(module):
    """By the name of its class, and made of nothing else."""
    parts = (module._parameters, module._buffers, module._modules)
    return "gelu" in class_name(module).lower() and not is_other(module) and not any(parts)


@torch.inference_mode(False)
def _gelu_of(module):
    """Which gelu its forward computes, as a few numbers tell. Both differ by up to 5e-4."""
    near = torch.linspace(-8, 8, 161, dtype=torch.float64, device="cpu")
    x = torch.cat((near, near * 16))  # some clip what is large
    try:
        theirs = _with_slope(lambda input: type(module).forward(module, input), x)
    except Exception as error:
        raise Unsuited(f"its forward fails for {tuple(x.shape)}: {type(error).__name__}") from None
    for approximate in ("tanh", "none"):
        recipe = Gelu(approximate)
        pairs = zip(_with_slope(recipe, x), theirs, strict=True)
        if all(torch.allclose(*pair, rtol=1e-6, atol=1e-6) for pair in pairs):
            return recipe
    raise Unsuited("computes another function than gelu")


@torch.enable_grad()
def _with_slope(function, x):
    input = x.clone().requires_grad_()
    y = function(input)
    (slope,) = torch.autograd.grad(y.sum(), input)
    return y.detach(), slope
