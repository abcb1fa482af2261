# SPDX-License-Identifier: Apache-2.0
"""DLPack with bfloat16, which NumPy's own lacks: in between, its bits go as unsigned integers."""

import ctypes
import sys

import numpy as np

# Bits that NumPy can store, cut and copy, and that nobody takes for numbers.
BFLOAT16 = np.dtype([("bfloat16", np.uint16)], align=True)

_UINT, _BFLOAT = 1, 4  # of DLDataTypeCode
_HOST_MEMORY = {1, 3, 11}  # kDLCPU, kDLCUDAHost, kDLROCMHost


class _Tensor(ctypes.Structure):
    """DLTensor as far as the code of its dtype."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned as far as that; the older DLManagedTensor begins with it."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", _Tensor),
    )


# A capsule's name tells where its DLTensor begins.
_OFFSETS = {b"dltensor": 0, b"dltensor_versioned": _Versioned.dl_tensor.offset}

# Prototypes of our own: types set on ctypes.pythonapi would be set for everyone.
_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _tensor_in(capsule):
    name = _capsule_name(capsule)
    return _Tensor.from_address(_capsule_pointer(capsule, name) + _OFFSETS[name])


class _Recoded:
    """A producer, except that one code of dtypes is sent as another."""

    def __init__(self, producer, code, sent):
        self._producer, self._code, self._sent = producer, code, sent
        self.recoded = False

    def __dlpack_device__(self):
        return self._producer.__dlpack_device__()

    def __dlpack__(self, **options):
        capsule = self._producer.__dlpack__(**options)
        tensor = _tensor_in(capsule)
        if tensor.code == self._code:
            tensor.code = self._sent
            self.recoded = True
        return capsule


def in_host_memory(producer):
    return producer.__dlpack_device__()[0] in _HOST_MEMORY


def imported(producer):
    """The producer's memory as an ndarray, which keeps it alive."""
    recoded = _Recoded(producer, _BFLOAT, _UINT)
    array = np.from_dlpack(recoded)
    return array.view(BFLOAT16) if recoded.recoded else array


def exporter(producer):
    """The function that makes ndarrays into arrays of the producer's library."""
    from_dlpack = _from_dlpack(producer)

    def exported(array):
        if array.dtype == BFLOAT16:
            array = _Recoded(array.view(np.uint16), _UINT, _BFLOAT)
        return from_dlpack(array)

    return exported


def _from_dlpack(producer):
    if hasattr(producer, "__array_namespace__"):
        return producer.__array_namespace__().from_dlpack
    for kind in type(producer).__mro__:
        library = sys.modules.get(kind.__module__.partition(".")[0])
        if hasattr(library, "from_dlpack"):
            return library.from_dlpack
    raise TypeError(f"no library with from_dlpack is known for {type(producer).__name__}")
