# SPDX-License-Identifier: Apache-2.0
"""The short way for plain calls, or functions that leave every call to the long one.

What calls an operator returns None where it does not serve: then the long way must be asked, which
also tells what is wrong with a call.
"""

from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location

import torch
from torch.autograd import forward_ad

from isobit._library import library_path

# What must know of every call. Each returns 0 or False where it does not want to.
WATCHERS = (
    torch._C._are_functorch_transforms_active,
    torch._C._len_torch_dispatch_stack,
    torch._C._is_torch_function_mode_enabled,
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


def _connect(function, *given):
    """Gives the module what it needs, and says whether it took it."""
    global missing
    if _module is None:
        return False
    try:
        getattr(_module, function)(*given)
    except (ImportError, AttributeError) as error:
        missing = str(error)
        return False
    return True


def _decline(*_arguments):
    return None


TENSORS = (torch.Tensor, torch.nn.Parameter)  # PyTorch's own
OTHER, PLAIN, RECORDED = range(3)


def _standing(arguments, places):
    """How a call of an operator stands, by the places of its tensors among all of its arguments.
    RECORDED: the tensors are PyTorch's own, on one device, nobody else is to see the call, and
    derivatives may be asked of it; PLAIN: the same, and they may not; OTHER: there is something to
    be looked at."""
    if any(watches() for watches in WATCHERS) or forward_ad._current_level >= 0:
        return OTHER
    given = [arguments[place] for place in places if arguments[place] is not None]
    for each in given:
        is_own = type(each) in TENSORS and not each.is_nested and each.layout is torch.strided
        if not is_own or each.device != given[0].device:
            return OTHER
    if torch._C._is_any_autocast_enabled():
        return OTHER
    records = torch.is_grad_enabled() and any(each.requires_grad for each in given)
    return RECORDED if records else PLAIN


_connected = _connect(
    *("connect", *TENSORS, WATCHERS, torch.is_grad_enabled),
    *(torch._C._is_any_autocast_enabled, forward_ad),
)
standing = _module.standing if _connected else _standing


def _function(name):
    return getattr(_module, name, _decline)


# (normalized_shape, input, weight, [bias,] eps[, residual]) -> y or (y, sum)
layer_norm, add_layer_norm = _function("layer_norm"), _function("add_layer_norm")
rms_norm, add_rms_norm = _function("rms_norm"), _function("add_rms_norm")


def forward_of(norm):
    """(input, weight, [bias,] eps[, residual]) -> y or (y, sum)"""
    return _function(norm.name + "_forward")


def backward_of(norm):
    """(grad_y, input or sum, weight, eps[, grad_sum]) -> the gradients of input, weight and
    bias"""
    return _function(norm.name + "_backward")


def connect_norms(of_each_norm):
    """For each of isobit.torch.norms.NORMS an autograd function for small calls; three functions
    that are called as `forward_of` is: for small calls that are recorded, for large ones, and for
    large ones that are not; and that which makes the gradients of small calls (ctx, what was
    kept, grad_y[, grad_sum]). The first one's forward and its node's apply become the module's."""
    _connect("connect_norms", *of_each_norm)


def connect_records(function, apply, like, named, call):
    """Given the autograd function of operators' records, its apply, and what makes a Like and a
    namespace: returns `call`, (record, arguments) -> the operator's results, or the module's, which
    does the same in less time. The function's forward and its node's apply become the module's."""
    taken = _connect("connect_records", function, apply, like, named)
    return _module.call if taken and _connected else call
