# SPDX-License-Identifier: Apache-2.0
"""Kernels that Triton compiled, executed and counted without a GPU: by libisobit_ptx.so.

Arrays are PyTorch's on the processor, which a kernel reaches where they lie.
"""

import ctypes
import json
import struct

import torch
from triton.backends.compiler import GPUTarget

TARGET = GPUTarget("cuda", 90, 32)
_SCRATCH = ("global_scratch_size", "profile_scratch_size")  # the last two parameters of a kernel


class _Lent(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


class _Launch(ctypes.Structure):
    """IsobitGivenLaunch of src/isobit/executor/given.h."""

    _fields_ = (
        ("ptx", ctypes.c_char_p),
        ("kernel", ctypes.c_char_p),
        ("machine_code", ctypes.c_char_p),
        ("machine_code_bytes", ctypes.c_size_t),
        ("parameters", ctypes.POINTER(ctypes.c_uint64)),
        ("parameter_count", ctypes.c_size_t),
        ("lent", ctypes.POINTER(_Lent)),
        ("lent_count", ctypes.c_size_t),
        ("shared_bytes", ctypes.c_int64),
        ("grid", ctypes.c_int64 * 3),
        ("threads", ctypes.c_int32),
    )


class Executor:
    def __init__(self, library):
        """library: the path of libisobit_ptx.so."""
        self._library = ctypes.CDLL(library)
        self._library.isobit_executor_launch.restype = ctypes.c_char_p
        self._library.isobit_executor_counters.restype = ctypes.c_char_p

    def launch(self, launch):
        """Compiles a Launch of isobit.ops.triton_variants for sm_90, and executes it."""
        if 0 in launch.grid:
            return
        made = launch.compiled(TARGET)
        name, metadata = made.metadata.name, made.metadata
        if any(getattr(metadata, size, 0) for size in _SCRATCH) or metadata.num_ctas != 1:
            raise NotImplementedError(f"{name}: memory of its own, or clusters, are not executed")
        given = launch.parameters()
        parameters = [_bits(value) for value in given] + [0] * len(_SCRATCH)
        storages = {}
        for value in given:
            if isinstance(value, torch.Tensor) and value.numel():
                storage = value.untyped_storage()
                storages[storage.data_ptr()] = _Lent(storage.data_ptr(), storage.nbytes())
        failed = self._library.isobit_executor_launch(
            ctypes.byref(
                _Launch(
                    ptx=made.asm["ptx"].encode(),
                    kernel=name.encode(),
                    machine_code=made.asm["cubin"],
                    machine_code_bytes=len(made.asm["cubin"]),
                    parameters=(ctypes.c_uint64 * len(parameters))(*parameters),
                    parameter_count=len(parameters),
                    lent=(_Lent * len(storages))(*storages.values()),
                    lent_count=len(storages),
                    shared_bytes=metadata.shared,
                    grid=(ctypes.c_int64 * 3)(*launch.grid, *[1] * (3 - len(launch.grid))),
                    threads=32 * metadata.num_warps,
                )
            )
        )
        if failed:
            raise RuntimeError(failed.decode())

    def counters(self):
        """What each kernel did since they were asked for last; at first, nothing."""
        return [json.loads(line) for line in self._library.isobit_executor_counters().splitlines()]


def _bits(value):
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    if isinstance(value, float):
        return int.from_bytes(struct.pack("<f", value), "little")
    return value & (1 << 64) - 1
