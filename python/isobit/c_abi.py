# SPDX-License-Identifier: Apache-2.0
"""isobit.h in ctypes, for what speaks to libisobit.so from Python; the first call loads it."""

import ctypes
from functools import cache

from isobit import library_path

MAX_THREADS = 1024
DTYPES = {"float32": 1, "float16": 2, "bfloat16": 3, "float64": 4, "int32": 5}

_MAX_RANK = 8
_ERRORS = {
    1: ValueError,  # ISOBIT_INVALID_ARGUMENT
    2: NotImplementedError,  # ISOBIT_UNSUPPORTED
    3: RuntimeError,  # ISOBIT_DEVICE_ERROR
    4: MemoryError,  # ISOBIT_OUT_OF_MEMORY
    5: RuntimeError,  # ISOBIT_INTERNAL
}


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * _MAX_RANK),
        ("strides", ctypes.c_int64 * _MAX_RANK),
    )


class ParallelFor(ctypes.Structure):
    _fields_ = (("run", ctypes.c_void_p), ("self", ctypes.c_void_p))


class Allocator(ctypes.Structure):
    _fields_ = (
        ("allocate", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("self", ctypes.c_void_p),
    )


class Context(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("threads", ctypes.c_int32),
        ("parallel_for", ParallelFor),
        ("allocator", Allocator),
        ("device", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
    )

    def __init__(self, **lent):
        super().__init__(ctypes.sizeof(Context), **lent)


_NORM_OPTIONS = (
    ("eps", ctypes.c_double),
    ("dropout", ctypes.c_double),
    ("dropout_seed", ctypes.c_uint64),
    ("hidden_dims", ctypes.c_int64),
    ("zero_centred", ctypes.c_int32),
)

# What follows struct_size: an entry's tensors, then its options.
ENTRIES = {
    "layernorm_forward": ("x residual weight bias y sum mean rstd", _NORM_OPTIONS),
    "layernorm_backward": (
        "x grad_y weight mean rstd grad_sum grad_x grad_residual grad_weight grad_bias",
        _NORM_OPTIONS,
    ),
    "rmsnorm_forward": ("x residual weight y sum rstd", _NORM_OPTIONS),
    "rmsnorm_backward": (
        "x grad_y weight rstd grad_sum grad_x grad_residual grad_weight",
        _NORM_OPTIONS,
    ),
    "elementwise_add": ("x residual y", ()),
    "elementwise_increment": ("x y", ()),
}


@cache
def _library():
    library = ctypes.CDLL(str(library_path()))
    library.isobit_last_error.restype = ctypes.c_char_p
    return library


@cache
def arguments(entry):
    """The struct of an entry's arguments."""
    tensors, options = ENTRIES[entry]
    pointers = ((name, ctypes.POINTER(Tensor)) for name in tensors.split())
    fields = (("struct_size", ctypes.c_size_t), *pointers, *options)
    return type(f"isobit_{entry}_args", (ctypes.Structure,), {"_fields_": fields})


@cache
def _function(entry):
    function = _library()[f"isobit_{entry}"]
    function.argtypes = (ctypes.POINTER(arguments(entry)), ctypes.POINTER(Context))
    return function


def call(entry, context=None, /, **given):
    """Calls isobit_ENTRY with tensors and options by name; a failure becomes an exception."""
    struct = arguments(entry)
    args = struct(ctypes.sizeof(struct))
    for name, value in given.items():
        try:
            setattr(args, name, ctypes.pointer(value) if isinstance(value, Tensor) else value)
        except TypeError as error:
            raise TypeError(f"{entry}: {name} {error}") from None
    if status := _function(entry)(args, context):
        raise _ERRORS[status](_library().isobit_last_error().decode())
