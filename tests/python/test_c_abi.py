# SPDX-License-Identifier: Apache-2.0
"""isobit.c_abi has the structs of isobit.h, and an exception for every status."""

import ctypes
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from isobit import c_abi

HEADER = Path(__file__).resolve().parents[2] / "include" / "isobit" / "isobit.h"


def declared(struct):
    """The fields of one of isobit.h's structs, as ctypes has them."""
    types = {
        "void*": ctypes.c_void_p,
        "const isobit_tensor*": ctypes.POINTER(c_abi.Tensor),
        "size_t": ctypes.c_size_t,
        "int32_t": ctypes.c_int32,
        "int64_t": ctypes.c_int64,
        "uint64_t": ctypes.c_uint64,
        "double": ctypes.c_double,
        "isobit_parallel_for": c_abi.ParallelFor,
        "isobit_allocator": c_abi.Allocator,
    }
    header = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    header = re.sub(r"void\*? \(\*(\w+)\)\([^)]*\)", r"void* \1", header)
    header = header.replace("ISOBIT_MAX_RANK]", "8]")
    body = re.search(rf"typedef struct {struct} {{(.*?)}} {struct};", header, re.S)[1]
    for kind, name, count in re.findall(r"([\w ]+\*?)\s+(\w+)(?:\[(\d+)\])?;", body):
        kind = types[kind.strip()]
        yield name, kind * int(count) if count else kind


@pytest.mark.parametrize(
    ("name", "struct"),
    [
        ("isobit_tensor", c_abi.Tensor),
        ("isobit_parallel_for", c_abi.ParallelFor),
        ("isobit_allocator", c_abi.Allocator),
        ("isobit_context", c_abi.Context),
        *((f"isobit_{entry}_args", c_abi.arguments(entry)) for entry in c_abi.ENTRIES),
    ],
)
def test_structs_are_those_of_the_header(name, struct):
    assert tuple(declared(name)) == tuple(struct._fields_)


def test_all_entries_of_the_header_are_there():
    entries = re.findall(r"isobit_status isobit_(\w+)\(const isobit_\1_args\*", HEADER.read_text())
    assert entries == list(c_abi.ENTRIES)


def test_codes_are_those_of_the_header():
    codes = re.findall(r"ISOBIT_(B?[FI]\d\d) = (\d)", HEADER.read_text())
    names = {"BF": "bfloat", "F": "float", "I": "int"}
    dtypes = {names[code[:-2]] + code[-2:]: int(number) for code, number in codes}
    assert dtypes == c_abi.DTYPES
    assert f"ISOBIT_MAX_THREADS {c_abi.MAX_THREADS}\n" in HEADER.read_text()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (1, ValueError),
        (2, NotImplementedError),
        (3, RuntimeError),
        (4, MemoryError),
        (5, RuntimeError),
    ],
)
def test_status_becomes_an_exception_with_the_librarys_words(monkeypatch, status, error):
    library = SimpleNamespace(isobit_last_error=lambda: b"what the library said")
    monkeypatch.setattr(c_abi, "_library", lambda: library)
    monkeypatch.setattr(c_abi, "_function", lambda entry: lambda args, context: status)
    with pytest.raises(error, match="what the library said"):
        c_abi.call("elementwise_increment")


def test_memory_that_a_context_refuses_is_a_memory_error():
    refuse = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(lambda *_: None)
    address = ctypes.cast(refuse, ctypes.c_void_p)
    context = c_abi.Context(allocator=c_abi.Allocator(address, address))
    zeros, grads = (ctypes.c_float * 20)(), (ctypes.c_float * 5)()
    x = c_abi.Tensor(ctypes.addressof(zeros), 80, c_abi.DTYPES["float32"], 2, (4, 5), (5, 1))
    grad_weight = c_abi.Tensor(ctypes.addressof(grads), 20, x.dtype, 1, (5,), (1,))
    with pytest.raises(MemoryError, match="layernorm backward: "):
        c_abi.call("layernorm_backward", context, x=x, grad_y=x, grad_weight=grad_weight)
