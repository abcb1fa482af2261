# SPDX-License-Identifier: Apache-2.0
"""isobit.h in ctypes: the call by name, which serves every operator. The first call loads the
library."""

import ctypes
import json
from functools import cache

from isobit._library import library_path

MAX_RANK = 8
MAX_THREADS = 1024
DTYPES = {
    "float32": 1,
    "float16": 2,
    "bfloat16": 3,
    "float64": 4,
    "int32": 5,
    "int64": 6,
    "bool": 7,
    "uint8": 8,
}

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
        ("shape", ctypes.c_int64 * MAX_RANK),
        ("strides", ctypes.c_int64 * MAX_RANK),
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


class _NamedTensor(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("tensor", ctypes.POINTER(Tensor)))


class _Value(ctypes.Union):
    _fields_ = (
        ("number", ctypes.c_double),
        ("integer", ctypes.c_int64),
        ("text", ctypes.c_char_p),
    )


class _Option(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("type", ctypes.c_int32), ("value", _Value))


@cache
def _library():
    library = ctypes.CDLL(str(library_path()))
    library.isobit_last_error.restype = ctypes.c_char_p
    library.isobit_operators.restype = ctypes.c_char_p
    library.isobit_call.argtypes = (
        *(ctypes.c_char_p, ctypes.c_char_p),
        *(ctypes.POINTER(_NamedTensor), ctypes.c_int32),
        *(ctypes.POINTER(_Option), ctypes.c_int32),
        ctypes.POINTER(Context),
    )
    return library


def operators():
    """What there is: a list of passes with their arguments and options."""
    return json.loads(_library().isobit_operators())


def _option(name, value):
    if isinstance(value, str):
        return _Option(name, 3, _Value(text=value.encode()))
    if isinstance(value, int):  # a bool too; of a seed the 64 bits
        return _Option(name, 2, _Value(integer=value - 2**64 if value >= 2**63 else value))
    return _Option(name, 1, _Value(number=value))


def call(op, pass_, context=None, /, **given):
    """Calls an operator's pass with tensors and options by name; None is absent. A failure becomes
    an exception."""
    tensors, options = [], []
    for name, value in given.items():
        if isinstance(value, Tensor):
            tensors.append(_NamedTensor(name.encode(), ctypes.pointer(value)))
        elif value is not None:
            options.append(_option(name.encode(), value))
    library = _library()
    status = library.isobit_call(
        *(op.encode(), pass_.encode()),
        *((_NamedTensor * len(tensors))(*tensors), len(tensors)),
        *((_Option * len(options))(*options), len(options)),
        context,
    )
    if status:
        raise _ERRORS[status](library.isobit_last_error().decode())
