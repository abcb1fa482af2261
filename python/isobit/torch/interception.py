# SPDX-License-Identifier: Apache-2.0
"""Puts Isobit's functions behind calls of PyTorch's: of one thread, or of the process."""

import threading

import torch
from torch.overrides import TorchFunctionMode

from isobit.torch import counterparts
from isobit.torch.fast import TENSORS
from isobit.torch.patching import Undoable


class Interception(TorchFunctionMode):
    leaves_isobit = True  # functional.py asks: what is Isobit's already it leaves as it is

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def __torch_function__(self, function, types, args=(), kwargs=None):
        # A subclass of Tensor knows PyTorch's functions, not ours.
        ours = self.calls.get(function)
        for each in types:
            if each not in TENSORS:
                ours = None
        return (function if ours is None else ours)(*args, **(kwargs or {}))


# By whether products and convolutions are asked for.
_ASKED = {
    (products, convolutions): counterparts.NORMS
    | (counterparts.PRODUCTS if products else {})
    | (counterparts.CONVOLUTIONS if convolutions else {})
    for products in (False, True)
    for convolutions in (False, True)
}


def intercept(*, products=False, convolutions=False, every=False):
    """with intercept(): calls of layer_norm and rms_norm, of torch and torch.nn.functional, are
    Isobit's in this thread, whoever makes them in Python. PyTorch keeps those with tensors that
    Isobit does not compute: other dtypes and devices, nested, sparse and subclasses of Tensor.

    products: also linear, matmul, mm, bmm and @. PyTorch keeps calls with further arguments, and
    products that it makes inside of other functions: of attention, einsum or addmm.

    convolutions: also conv1d, conv2d, conv_transpose1d and conv_transpose2d, and so torch.nn's
    modules of these names.

    every: also every other function that isobit.torch has: activations, softmax, attention, cross
    entropy, pooling, interpolation, running sums, addmm of a row, mv and dot. PyTorch keeps calls
    with arguments that ours lack, such as a place for the result, or probabilities of classes.

    What torch.compile compiles inside is Isobit's too, and is compiled again outside.
    """
    if every:
        return Interception(counterparts.EVERY)
    return Interception(_ASKED[bool(products), bool(convolutions)])


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
