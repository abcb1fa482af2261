# SPDX-License-Identifier: Apache-2.0
"""The products of isobit.numpy."""

import weakref

import numpy as np

from isobit import _arrays, c_abi
from isobit._calls import FLOATS, Call, context

_OF_Y = {
    "float32": ("float32", "float16", "bfloat16"),
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
    "float64": ("float64",),
}
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
ARITHMETICS = ("canonical", "tensor")


class PackedMatrix:
    """A matrix b of shape (k, n) as the processor's kernels read it, for matmul(a, packed): the
    same bits in less time, where many calls multiply by it. A copy, freed with this object."""

    def __init__(self, b):
        if isinstance(b, PackedMatrix):
            raise TypeError("PackedMatrix: b is a PackedMatrix already; give the array")
        b = _arrays.checked("PackedMatrix", "b", b, FLOATS)
        if b.ndim != 2:
            raise ValueError(f"PackedMatrix: b has {b.ndim} dimensions; must have 2")
        self.shape, self.dtype = b.shape, _arrays.NAMES[b.dtype]
        self._address = c_abi.pack(_arrays.strided(b), context())
        weakref.finalize(self, c_abi.free_packed, self._address).atexit = False

    @property
    def nbytes(self):
        """Of the copy."""
        return c_abi.packed_bytes(self._address)

    def __repr__(self):
        return f"PackedMatrix of shape {self.shape} and dtype {self.dtype}"

    def __reduce__(self):
        raise TypeError(
            "PackedMatrix: it is this processor's and cannot be copied or pickled; pack the array "
            "again"
        )


def matmul(a, b, *, bias=None, activation=None, out_dtype=None, arithmetic="canonical"):
    """activation(a @ b + bias), rounded once; batches broadcast as numpy.matmul's. Arrays of any
    strides are read where they lie; b may be a PackedMatrix. activation: None, "relu", "gelu",
    "gelu_tanh" or "silu". out_dtype: the type of the result, unless given that of a. arithmetic:
    "canonical", or "tensor", which is refused wherever there are no tensor cores, as on every
    processor."""
    return _product("matmul", a, b, bias, activation, out_dtype, arithmetic)


def linear(input, weight, bias=None, *, activation=None, arithmetic="canonical"):
    """activation(input @ weight.T + bias), rounded once. arithmetic: as of matmul."""
    if isinstance(weight, PackedMatrix):
        raise TypeError("linear: weight is a PackedMatrix, of weight.T; call matmul(input, weight)")
    weight = _arrays.checked("linear", "weight", weight, FLOATS)
    if weight.ndim != 2:
        raise ValueError(f"linear: weight has {weight.ndim} dimensions; must have 2")
    return _product("linear", input, weight.T, bias, activation, None, arithmetic)


def chosen(function, activation, arithmetic):
    """The options of a product by their names in the library."""
    kind = "none" if activation is None else activation
    if kind not in ACTIVATIONS:
        allowed = ", ".join(map(repr, (None, *ACTIVATIONS[1:])))
        raise ValueError(f"{function}: activation is {activation!r}; allowed: {allowed}")
    if arithmetic not in ARITHMETICS:
        allowed = ", ".join(map(repr, ARITHMETICS))
        raise ValueError(f"{function}: arithmetic is {arithmetic!r}; allowed: {allowed}")
    return {"activation": kind, "arithmetic": arithmetic}


def _product(function, a, b, bias, activation, out_dtype, arithmetic):
    options = chosen(function, activation, arithmetic)
    name_a, name_b = ("input", "weight") if function == "linear" else ("a", "b")
    if isinstance(a, PackedMatrix):
        raise TypeError(f"{function}: {name_a} is a PackedMatrix; only b of matmul may be one")
    packed = b if isinstance(b, PackedMatrix) else None
    call = Call(function, name_a, a, FLOATS if packed is None else (packed.dtype,))
    a = call.x
    if packed is None:
        b = _arrays.checked(function, name_b, b, (call.dtype,), call.like)
    else:  # of which only the shape is wanted
        b = np.broadcast_to(np.float32(0), packed.shape)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"{function}: {name_a} or {name_b} has no dimensions; must have 1 or more")
    row, column = a.ndim == 1, b.ndim == 1
    a, b = a[np.newaxis] if row else a, b[:, np.newaxis] if column else b
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"{function}: {name_a} has {a.shape[-1]} columns; {name_b} has {b.shape[-2]} "
            f"{'columns' if function == 'linear' else 'rows'}"
        )
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(
            f"{function}: batches have shapes {a.shape[:-2]} and {b.shape[:-2]}, which do not "
            "broadcast"
        ) from None
    if len(batch) + 2 > c_abi.MAX_RANK:
        raise ValueError(
            f"{function}: the result has {len(batch) + 2} dimensions; allowed: {c_abi.MAX_RANK}"
        )
    of_y = _OF_Y[call.dtype]
    dtype = call.dtype if out_dtype is None else call.named("out_dtype", out_dtype, of_y)
    tensors = {
        name: _arrays.strided(np.broadcast_to(array, (*batch, *array.shape[-2:])))
        for name, array in (("a", a), ("b", b))
        if name == "a" or packed is None
    }
    if bias is not None:
        of_bias = tuple(dict.fromkeys((call.dtype, "float32")))
        of_bias = ("float64",) if call.dtype == "float64" else of_bias
        bias = _arrays.checked(function, "bias", bias, of_bias, call.like)
        if bias.shape != b.shape[-1:]:
            raise ValueError(f"{function}: bias has shape {bias.shape}; must be {b.shape[-1:]}")
        tensors["bias"] = _arrays.strided(bias)
    y = call.empty((*batch, a.shape[-2], b.shape[-1]), dtype)
    tensors["y"] = _arrays.strided(y)
    if packed is None:
        c_abi.call("matmul", "fwd", context(), **tensors, **options)
    else:
        c_abi.multiply_packed(packed._address, context(), **tensors, **options)
    y = y[..., 0, :] if row else y
    return call.result(y[..., 0] if column else y)
