# SPDX-License-Identifier: Apache-2.0
"""Linear layers for inference whose weights are packed once."""

import weakref

import torch
from torch.autograd import forward_ad

from isobit.torch import product_functions
from isobit.torch.product_modules import Linear

_ops = torch.ops.isobit


def _multiplied_dtype(tensor):
    """That which autocast gives it in linear()."""
    if not torch.is_autocast_enabled("cpu") or tensor.dtype == torch.float64:
        return tensor.dtype
    return torch.get_autocast_dtype("cpu")


def _as_multiplied(tensor):
    return None if tensor is None else tensor.to(_multiplied_dtype(tensor))


def _asks_for_gradients(*tensors):
    given = [tensor for tensor in tensors if tensor is not None]
    if torch.is_grad_enabled() and any(each.requires_grad for each in given):
        return True
    if forward_ad._current_level < 0:
        return False
    return any(forward_ad.unpack_dual(each).tangent is not None for each in given)


class _Packed:
    """The panels of a weight, freed with this object, and what they were made of: held, so that its
    memory cannot become another weight's unseen."""

    def __init__(self, weight, multiplied):
        self.source, self.version = weight.detach(), weight._version
        self.dtype = multiplied.dtype
        self.address = _ops._pack_matrix(multiplied.detach().t())
        weakref.finalize(self, _ops._free_packed, self.address).atexit = False

    def is_of(self, weight, dtype):
        source = self.source
        return (
            source.data_ptr() == weight.data_ptr()
            and self.version == weight._version
            and self.dtype == dtype
            and source.dtype == weight.dtype
            and source.shape == weight.shape
            and source.stride() == weight.stride()
        )

    def bytes(self):
        return _ops._packed_bytes(self.address)


class PackedLinear(Linear):
    """Linear for inference on the CPU, with the same bits in less time: its weight is packed at the
    first call, and again where PyTorch has counted a change of it. Panels take about as much memory
    as the weight, which stays; copies and pickles have none."""

    _packed = None

    @classmethod
    def of(cls, linear):
        """One with the parameters of a torch.nn.Linear, shared, and the options of a Linear."""
        if not isinstance(linear, torch.nn.Linear):
            name = type(linear).__name__
            raise TypeError(f"PackedLinear.of: linear must be a torch.nn.Linear; it is {name}")
        made = cls(
            *(linear.in_features, linear.out_features, linear.bias is not None, "meta"),
            **(linear._options() if isinstance(linear, Linear) else {}),
        )
        made.weight, made.bias = linear.weight, linear.bias
        return made.train(linear.training)

    def pack(self):
        """Packs the weight as it is now: at once, and after changes that PyTorch does not count,
        those of weight.data."""
        self._pack()
        return self

    def _pack(self):
        weight = self.weight
        if weight.device.type != "cpu":
            raise NotImplementedError(
                f"PackedLinear: weight is on {weight.device}; matrices are packed for cpu"
            )
        if weight.is_inference():
            raise RuntimeError(
                "PackedLinear: weight was made in inference mode, where PyTorch counts no changes; "
                "clone it outside"
            )
        packed = _Packed(weight, _as_multiplied(weight))
        self._packed = packed
        return packed  # by now another thread may have put another there

    @property
    def packed_bytes(self):
        """The memory that panels take; 0 before the first call."""
        return 0 if self._packed is None else self._packed.bytes()

    def forward(self, input):
        # What compiles must not be imported for those who do not compile.
        multiply = _uncompiled if torch.compiler.is_compiling() else PackedLinear._multiply
        return multiply(self, input)

    def _multiply(self, input):
        if not isinstance(input, torch.Tensor):
            raise TypeError(f"linear: input must be a Tensor; it is {type(input).__name__}")
        if input.ndim == 0:
            raise ValueError("linear: input has no dimensions; must have 1 or more")
        weight, bias = self.weight, self.bias
        if input.is_nested:
            return product_functions.of_rows("linear", "weight", input, weight, self.forward)
        if _asks_for_gradients(input, weight, bias):
            raise RuntimeError(
                "PackedLinear: it has no gradients; call it under torch.no_grad() or "
                "torch.inference_mode(), or use Linear"
            )
        a, bias = _as_multiplied(input), _as_multiplied(bias)
        dtype = _multiplied_dtype(weight)
        packed = self._packed
        if packed is None or weight.is_inference() or not packed.is_of(weight, dtype):
            packed = self._pack()
        rows = a.unsqueeze(0) if a.ndim == 1 else a.flatten(0, -2)
        chosen = product_functions.options("linear", **self._options())
        y = _ops._packed_matmul(
            *(rows, bias, packed.address, weight.shape[0]),
            *(chosen["activation"], chosen["arithmetic"]),
        )
        return y.view(*a.shape[:-1], weight.shape[0])

    def _apply(self, fn, recurse=True):
        self._packed = None
        return super()._apply(fn, recurse)

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_packed"}


_uncompiled = torch._disable_dynamo(PackedLinear._multiply)
