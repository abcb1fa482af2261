# SPDX-License-Identifier: Apache-2.0
"""Isobit in PyTorch: norms as drop-ins, with the same bits in eager and compiled code."""

from isobit.torch import (
    adapters,  # noqa: F401, first of all: it says what to do where there is no PyTorch
    sharding,
)
from isobit.torch.functional import (
    add,
    add_layer_norm,
    add_rms_norm,
    dropout_add_layer_norm,
    dropout_add_rms_norm,
    increment,
    layer_norm,
    rms_norm,
)
from isobit.torch.interception import Override, intercept, override
from isobit.torch.memory import cache_limit, cache_use, empty_cache, set_cache_limit
from isobit.torch.modules import LayerNorm, RMSNorm
from isobit.torch.patching import Report, patch
from isobit.torch.settings import settings

sharding.register_when_imported()

__all__ = [
    "LayerNorm",
    "Override",
    "RMSNorm",
    "Report",
    "add",
    "add_layer_norm",
    "add_rms_norm",
    "cache_limit",
    "cache_use",
    "dropout_add_layer_norm",
    "dropout_add_rms_norm",
    "empty_cache",
    "increment",
    "intercept",
    "layer_norm",
    "override",
    "patch",
    "rms_norm",
    "set_cache_limit",
    "settings",
]
