# SPDX-License-Identifier: Apache-2.0
"""Which modules of a model are torch.nn.MultiheadAttention, and how Isobit computes them."""

import weakref
from dataclasses import dataclass
from inspect import getattr_static

import torch
from torch import nn
from torch.nn.utils import parametrize

from isobit.torch import transformers_attention
from isobit.torch.attention_modules import MultiheadAttention
from isobit.torch.probing import Unsuited, class_name, lies_in
from isobit.torch.self_attention import SelfAttention

_FORWARD = nn.MultiheadAttention.forward  # as PyTorch has it; others may exchange it later
_RESET = nn.MultiheadAttention._reset_parameters


@dataclass(frozen=True)
class Attention:
    """How a class that inherits the forward of torch.nn.MultiheadAttention is computed."""

    arithmetic: str = "canonical"

    renames = True

    def members(self, original):
        names = ["forward", "_attended", "_qkv_same_embed_dim", "checkpoint"]
        if getattr_static(original, "_reset_parameters") is _RESET:
            names.append("_reset_parameters")
        members = {name: getattr_static(MultiheadAttention, name) for name in names}
        return members | {"_chosen_arithmetic": self.arithmetic}


def is_attention(module):
    return isinstance(module, nn.MultiheadAttention)


def is_ours(module):
    if not is_attention(module):
        return False
    kind = parametrize.type_before_parametrizations(module)
    return getattr_static(kind, "forward") is MultiheadAttention.forward


def replacement(module, arithmetic):
    """isobit.torch.MultiheadAttention, or how Isobit computes a class of somebody else's."""
    original = parametrize.type_before_parametrizations(module)
    if getattr_static(original, "forward", None) is not _FORWARD:
        raise Unsuited(f"{original.__name__} has a forward of its own")
    # An attribute of this name, which is somebody else's, would be applied by ours.
    if original is nn.MultiheadAttention and arithmetic == "canonical":
        return Attention() if hasattr(module, "arithmetic") else MultiheadAttention
    return Attention(arithmetic)


def _called_attention(module):
    return is_attention(module) or "attention" in class_name(module).lower()


def others(model):
    """{name: why it stays} of modules that are called attention and contain none that is."""
    models = transformers_attention.models(model)
    reasons = {}
    for name, module in model.named_modules():
        if not _called_attention(module) or is_attention(module):
            continue
        contains = any(_called_attention(each) for each in module.modules() if each is not module)
        if lies_in(name, models) or contains or isinstance(module, SelfAttention):
            continue
        kind = type(module).__name__
        is_scripted = isinstance(module, torch.jit.ScriptModule)
        reasons[name] = (
            "is scripted" if is_scripted else f"{kind} is no torch.nn.MultiheadAttention"
        )
    return reasons


def keep_padded(model):
    """Has encoders of layers with Isobit's attention leave padded batches as they are, which
    without gradients they would make nested tensors of for PyTorch's own layer. Returns what
    undoes it."""
    undo = []
    for module in model.modules():
        if not isinstance(module, nn.TransformerEncoder):
            continue
        attentions = (getattr(each, "self_attn", None) for each in module.layers)
        if getattr(module, "use_nested_tensor", False) and any(map(is_ours, attentions)):
            module.use_nested_tensor = False
            undo.append(weakref.ref(module))
    return undo


def restore(undo):
    while undo:
        if (module := undo.pop()()) is not None:
            module.use_nested_tensor = True
