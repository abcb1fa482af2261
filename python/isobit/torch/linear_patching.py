# SPDX-License-Identifier: Apache-2.0
"""Which modules of a model are linear layers, and how Isobit computes them."""

import sys
from dataclasses import dataclass, replace
from inspect import getattr_static

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.utils import parametrize

from isobit.torch import product_functions, product_modules
from isobit.torch.probing import Unsuited, class_name

_FORWARD = nn.Linear.forward  # as PyTorch has it; others may exchange it later

LAZY = "is lazy, and PyTorch changes its class at its first call; patch after it"
_UNCALLED = "torch.nn.MultiheadAttention multiplies by its weight and never calls it"


@dataclass(frozen=True)
class Product:
    """How a layer of another class than torch.nn.Linear is computed. by_columns: its weight is
    (inputs, outputs), as that of transformers' Conv1D is."""

    by_columns: bool = False
    arithmetic: str = "canonical"

    def forward(self, module, input):
        multiply = product_functions.matmul if self.by_columns else product_functions.linear
        return multiply(input, module.weight, bias=module.bias, arithmetic=self.arithmetic)


def _product(module):
    """By the forward of its class, None where that is no linear layer's."""
    forward = getattr_static(parametrize.type_before_parametrizations(module), "forward", None)
    if forward is _FORWARD:
        return Product()
    conv1d = getattr(sys.modules.get("transformers.pytorch_utils"), "Conv1D", None)
    if conv1d is not None and forward is conv1d.forward:
        return Product(by_columns=True)
    return None


def is_linear(module):
    """By its class, whatever its name is."""
    return isinstance(module, nn.Linear) or _product(module) is not None


def called_linear(module):
    """By its name alone, with weights of its own: of these the report tells why they stay."""
    return called(module, "linear")


def called(module, word):
    """Whether the name of its class has the word, and it has weights of its own."""
    children = {child for child, _ in module.named_children()}
    weights = [*module._parameters.values(), *module._buffers.values()]
    return (
        word in class_name(module).lower()
        and children <= {"parametrizations", "_packed_params"}
        and (bool(weights) or hasattr(module, "_packed_params"))
    )


def uncalled(model):
    """Layers whose weights PyTorch's attention takes."""
    return {
        module.out_proj: _UNCALLED
        for module in model.modules()
        if isinstance(module, nn.MultiheadAttention)
        and type(module).forward is nn.MultiheadAttention.forward
    }


def held(module):
    """Weight and bias by name where they are no parameters. What a parametrization makes is not
    asked for: it may change with each question."""
    values = vars(module) | module._buffers
    return {
        name: values[name]
        for name in ("weight", "bias")
        if isinstance(values.get(name), torch.Tensor)
    }


def replacement(module, arithmetic):
    """isobit.torch.Linear, or how Isobit computes a class of somebody else's."""
    if isinstance(module, NonDynamicallyQuantizableLinear):
        raise Unsuited(_UNCALLED)
    if isinstance(module, nn.Bilinear):
        raise Unsuited("Bilinear multiplies by two inputs")
    if isinstance(module, LazyModuleMixin):
        raise Unsuited(LAZY)
    original = parametrize.type_before_parametrizations(module)
    product = _product(module)
    if product is None and hasattr(module, "_packed_params"):
        raise Unsuited("its weights are quantised")
    if product is None and isinstance(module, nn.Linear):
        raise Unsuited(f"{original.__name__} has a forward of its own")
    if product is None:
        raise Unsuited(f"{original.__name__} is no torch.nn.Linear")
    # Attributes of these names, which are somebody else's, would be applied by isobit.torch.Linear.
    named = any(hasattr(module, name) for name in ("activation", "arithmetic"))
    if original is nn.Linear and not named and arithmetic == "canonical":
        return product_modules.Linear
    return replace(product, arithmetic=arithmetic)
