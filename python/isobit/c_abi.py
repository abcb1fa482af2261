# SPDX-License-Identifier: Apache-2.0
"""isobit.h in ctypes: the call by name, which serves every operator, and packed matrices. The first
call loads the library."""

import ctypes
import json
import os
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


class Event(ctypes.Structure):
    """A call that succeeded."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("op", ctypes.c_char_p),
        ("pass_", ctypes.c_char_p),
        ("device", ctypes.c_int32),
        ("begin", ctypes.c_int64),
        ("end", ctypes.c_int64),
        ("bytes", ctypes.c_double),
        ("operations", ctypes.c_double),
    )


_Observer = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Event))


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
    library.isobit_observe.argtypes = (_Observer, ctypes.c_void_p)
    library.isobit_set_isa.argtypes = (ctypes.c_char_p,)
    library.isobit_record.argtypes = (ctypes.c_char_p,)
    library.isobit_matmul_pack.argtypes = (
        *(ctypes.POINTER(Tensor), ctypes.POINTER(Context)),
        ctypes.POINTER(ctypes.c_void_p),
    )
    library.isobit_matmul_packed.argtypes = (
        *(ctypes.c_void_p, ctypes.c_void_p),
        ctypes.POINTER(Context),
    )
    library.isobit_packed_matrix_bytes.argtypes = (ctypes.c_void_p,)
    library.isobit_packed_matrix_bytes.restype = ctypes.c_int64
    library.isobit_packed_matrix_free.argtypes = (ctypes.c_void_p,)
    library.isobit_packed_matrix_free.restype = None
    return library


def operators():
    """What there is: a list of passes with their arguments and options."""
    return json.loads(_library().isobit_operators())


def _option(name, value):
    if isinstance(value, str):
        return _Option(name, 3, _Value(text=value.encode()))
    if isinstance(value, int):  # a bool too; of a seed the 64 bits
        if not -(2**63) <= value < 2**64:  # ctypes would cut them off
            raise OverflowError(f"option {name.decode()} is {value}, which 64 bits cannot hold")
        return _Option(name, 2, _Value(integer=value - 2**64 if value >= 2**63 else value))
    return _Option(name, 1, _Value(number=value))


def _check(status):
    if status:
        raise _ERRORS[status](_library().isobit_last_error().decode())


def call(op, pass_, context=None, /, **given):
    """Calls an operator's pass with tensors and options by name; None is absent. A failure becomes
    an exception."""
    tensors, options = [], []
    for name, value in given.items():
        if isinstance(value, Tensor):
            tensors.append(_NamedTensor(name.encode(), ctypes.pointer(value)))
        elif value is not None:
            options.append(_option(name.encode(), value))
    status = _library().isobit_call(
        *(op.encode(), pass_.encode()),
        *((_NamedTensor * len(tensors))(*tensors), len(tensors)),
        *((_Option * len(options))(*options), len(options)),
        context,
    )
    _check(status)


_observer = _Observer()  # as long as it may be called


def observe(function):
    """Has function(event) called after each call of the process, on its thread; None: nothing."""
    global _observer
    told = _Observer() if function is None else _Observer(lambda _, event: function(event.contents))
    _check(_library().isobit_observe(told, None))
    _observer = told


def record(path):
    """Has each call of the process written to a file; None: to none."""
    _check(_library().isobit_record(None if path is None else os.fsencode(path)))


def set_isa(name):
    """The widest instruction set that calls may use; "auto": all that the processor has."""
    _check(_library().isobit_set_isa(name.encode()))


def pack(b, context=None):
    """The address of a packed matrix, to be freed."""
    packed = ctypes.c_void_p()
    _check(_library().isobit_matmul_pack(b, context, packed))
    return packed.value


def packed_bytes(packed):
    return _library().isobit_packed_matrix_bytes(packed)


def free_packed(packed):
    _library().isobit_packed_matrix_free(packed)


@cache
def _described(op, pass_):
    return next(each for each in operators() if (each["op"], each["pass"]) == (op, pass_))


@cache
def _arguments_of_matmul():
    """isobit_matmul_args: arrays, options of 8 bytes, and choices."""
    described = _described("matmul", "fwd")
    numbers = {"real": ctypes.c_double, "choice": ctypes.c_int32}
    options = [(each["name"], numbers[each["type"]]) for each in described["options"]]
    options.sort(key=lambda option: ctypes.sizeof(option[1]), reverse=True)
    arrays = [(each["name"], ctypes.POINTER(Tensor)) for each in described["arguments"]]
    fields = [("struct_size", ctypes.c_size_t), *arrays, *options]
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})


def multiply_packed(packed, context=None, /, **given):
    """matmul with b packed: tensors and options by name, as `call` takes them."""
    arguments = _arguments_of_matmul()()
    arguments.struct_size = ctypes.sizeof(arguments)
    for option in _described("matmul", "fwd")["options"]:
        value = given.pop(option["name"], option["default"])
        setattr(
            *(arguments, option["name"]),
            option["choices"].index(value) if isinstance(value, str) else value,
        )
    for name, tensor in given.items():
        setattr(arguments, name, ctypes.pointer(tensor))
    _check(_library().isobit_matmul_packed(ctypes.byref(arguments), packed, context))
