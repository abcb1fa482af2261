# SPDX-License-Identifier: Apache-2.0
"""Puts Isobit's norms, products and convolutions behind calls of PyTorch's functions: of one
thread, or of the process."""

import threading

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from isobit.torch import convolutions, functional, product_functions
from isobit.torch.patching import Undoable
from isobit.torch.probing import DEVICES, DTYPES


def _computes(input, *weights):
    return (
        input.dtype in DTYPES
        and input.device.type in DEVICES
        and input.layout == torch.strided
        and not input.is_nested
        and all(each is None or each.dtype in (input.dtype, torch.float32) for each in weights)
    )


# The last argument is that of torch.layer_norm alone.
def _layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    if _computes(input, weight, bias):
        return functional.layer_norm(input, normalized_shape, weight, bias, eps)
    return torch.layer_norm(input, normalized_shape, weight, bias, eps, cudnn_enable)


def _rms_norm(input, normalized_shape, weight=None, eps=None):
    if _computes(input, weight):
        return functional.rms_norm(input, normalized_shape, weight, eps)
    return torch.rms_norm(input, normalized_shape, weight, eps)


_CALLS = {
    torch.layer_norm: _layer_norm,
    torch.rms_norm: _rms_norm,
    nn.functional.layer_norm: _layer_norm,
    nn.functional.rms_norm: _rms_norm,
}


def _multiplies(input, *others):
    """Of several types, which autocast makes one, or PyTorch refuses in words of its own."""
    if not (isinstance(input, torch.Tensor) and _computes(input)):
        return False
    given = [each for each in others if each is not None]
    cast = torch.is_autocast_enabled(input.device.type)
    return all(
        isinstance(each, torch.Tensor)
        and _computes(each)
        and each.device == input.device
        and (cast or each.dtype == input.dtype)
        for each in given
    )


# What else PyTorch's functions may be given, such as a place for the result, stays theirs.
def _product(theirs, ours):
    def call(*args, **kwargs):
        if len(args) == 2 and not kwargs and _multiplies(*args):
            return ours(*args)
        return theirs(*args, **kwargs)

    return call


def _linear(input, weight, bias=None):
    if _multiplies(input, weight, bias):
        return product_functions.linear(input, weight, bias)
    return nn.functional.linear(input, weight, bias)


def _of_right(right, left):
    return product_functions.matmul(left, right)


_PRODUCTS = {
    nn.functional.linear: _linear,
    **{
        theirs: _product(theirs, getattr(product_functions, name))
        for name in ("matmul", "mm", "bmm")
        for theirs in (getattr(torch, name), getattr(torch.Tensor, name))
    },
    torch.Tensor.__matmul__: _product(torch.Tensor.__matmul__, product_functions.matmul),
    torch.Tensor.__rmatmul__: _product(torch.Tensor.__rmatmul__, _of_right),
}


def _convolution(theirs, ours):
    def call(input, weight, bias=None, *args, **kwargs):
        function = ours if _multiplies(input, weight, bias) else theirs
        return function(input, weight, bias, *args, **kwargs)

    return call


_CONVOLUTIONS = {
    getattr(torch, name): _convolution(getattr(torch, name), getattr(convolutions, name))
    for name in ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")
}


class _Interception(TorchFunctionMode):
    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def __torch_function__(self, function, types, args=(), kwargs=None):
        # A subclass of Tensor knows PyTorch's functions, not ours.
        if all(each in (torch.Tensor, nn.Parameter) for each in types):
            function = self.calls.get(function, function)
        return function(*args, **(kwargs or {}))


# By whether products and convolutions are asked for.
_ASKED = {
    (products, convolutions): _CALLS
    | (_PRODUCTS if products else {})
    | (_CONVOLUTIONS if convolutions else {})
    for products in (False, True)
    for convolutions in (False, True)
}


def intercept(*, products=False, convolutions=False):
    """with intercept(): calls of layer_norm and rms_norm, of torch and torch.nn.functional, are
    Isobit's in this thread, whoever makes them in Python. PyTorch keeps those with tensors that
    Isobit does not compute: other dtypes and devices, nested, sparse and subclasses of Tensor.

    products: also linear, matmul, mm, bmm and @. PyTorch keeps calls with further arguments, and
    products that it makes inside of other functions: of attention, einsum or addmm.

    convolutions: also conv1d, conv2d, conv_transpose1d and conv_transpose2d, and so torch.nn's
    modules of these names.

    What torch.compile compiles inside is Isobit's too, and is compiled again outside.
    """
    return _Interception(_ASKED[bool(products), bool(convolutions)])


_lock = threading.Lock()
_overrides = set()


class Override(Undoable):
    """A reason for the override to be on."""

    def __init__(self):
        with _lock:
            if not _overrides:
                torch.ops.isobit._override_aten(True)
            _overrides.add(self)

    def restore(self):
        with _lock:
            if _overrides == {self}:
                torch.ops.isobit._override_aten(False)
            _overrides.discard(self)


def override() -> Override:
    """Layer norm of CPU tensors is Isobit's in the whole process, forward and backward, until
    restore() of the result, or of the last result if there were more calls; or inside of `with`.

    It covers what comes down to aten::native_layer_norm: nn.LayerNorm, both layer_norm functions,
    PyTorch's own transformer layers, TorchScript, C++. It does not cover RMS norm, other devices,
    and what torch.compile compiles, which computes its norms itself. Second derivatives are
    PyTorch's.

    What was computed forward inside must be computed backward inside. Its gradients are those of
    the mean and deviation that PyTorch keeps, in float32, so their bits are not quite those of
    isobit.torch.layer_norm, which finds them again. PyTorch warns once that an
    operator was replaced. Its table of operators is not locked against callers: do this, and
    restore, while no other thread computes layer norms.
    """
    return Override()
