# SPDX-License-Identifier: Apache-2.0
"""Writes the calls of a block into a file, which `isobit replay` computes again elsewhere."""

import threading
from contextlib import contextmanager

from isobit import c_abi

_lock = threading.Lock()


@contextmanager
def record(file):
    """with record(file): every operator of Isobit that the process calls on the CPU is written to
    the file, with its inputs and with hashes of its results, forward and backward, eager and
    compiled. `isobit replay FILE` repeats the calls without PyTorch, on another instruction set or
    device, and compares the hashes. PackedLinear is left out; calls on a GPU raise
    NotImplementedError at the end of the block. One block records at a time."""
    if not _lock.acquire(blocking=False):
        raise RuntimeError("record: another block records already")
    try:
        c_abi.record(file)
        try:
            yield
        finally:
            c_abi.record(None)
    finally:
        _lock.release()
