# SPDX-License-Identifier: Apache-2.0
"""The short way for plain calls, or functions that leave every call to the long one.

Each returns None where it does not serve: then the long way must be asked, which also tells what
is wrong with a call.
"""

from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location

import torch

from isobit import library_path

# What must know of every call. Each returns 0 or False where it does not want to.
_WATCHERS = (
    torch._C._are_functorch_transforms_active,
    torch._C._len_torch_dispatch_stack,
    torch._C._len_torch_function_stack,
    torch._C._is_tracing,
    torch.autograd._profiler_enabled,
)


def _load():
    """The module, or why there is none."""
    path = library_path().parent / "_isobit_fast.abi3.so"
    if not path.exists():
        return None, f"{path.name} was not built: it needs Python.h (Debian: python3-dev)"
    try:
        loader = ExtensionFileLoader("_isobit_fast", str(path))
        module = module_from_spec(spec_from_file_location("_isobit_fast", path, loader=loader))
        loader.exec_module(module)
    except ImportError as error:
        return None, str(error)
    return module, ""


_module, missing = _load()


def _decline(*_arguments):
    return None


def _function(name):
    return getattr(_module, name, _decline)


layer_norm, rms_norm = _function("layer_norm"), _function("rms_norm")


def forward_of(norm):
    """(input, weight, [bias,] eps) -> y"""
    return _function(norm.name + "_forward")


def backward_of(norm):
    """(grad_y, input, weight, eps) -> the gradients of input, weight and bias"""
    return _function(norm.name + "_backward")


def connect(*of_each_norm):
    """For layer norm, then RMS norm: what records a call (input, weight, [bias,] eps) -> y, its
    operator, and that of its gradients."""
    global missing
    if _module is None:
        return
    try:
        _module.connect(
            *(torch.Tensor, torch.nn.Parameter, _WATCHERS, torch.is_grad_enabled),
            *(torch.autograd.forward_ad, *of_each_norm),
        )
    except (ImportError, AttributeError) as error:
        missing = str(error)
