# SPDX-License-Identifier: Apache-2.0
"""isobit.c_abi has the structs of isobit.h, calls every operator by name, and raises an exception
for every status."""

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
        "const char*": ctypes.c_char_p,
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
        ("isobit_named_tensor", c_abi._NamedTensor),
    ],
)
def test_structs_are_those_of_the_header(name, struct):
    assert tuple(declared(name)) == tuple(struct._fields_)


def test_options_are_those_of_the_header():
    header = HEADER.read_text()
    codes = dict(re.findall(r"ISOBIT_(NUMBER|INTEGER|TEXT) = (\d)", header))
    made = {"NUMBER": 0.5, "INTEGER": 7, "TEXT": "yes"}
    assert {name: str(c_abi._option(b"", value).type) for name, value in made.items()} == codes
    union = re.search(r"typedef struct isobit_option {.*?union {(.*?)} value;", header, re.S)[1]
    members = re.findall(r"(\w+);", union)
    assert members == [name for name, _ in c_abi._Value._fields_]
    assert [name for name, _ in c_abi._Option._fields_] == ["name", "type", "value"]


def test_every_operator_describes_itself():
    described = c_abi.operators()
    passes = [(each["op"], each["pass"]) for each in described]
    assert ("layernorm", "bwd") in passes
    assert len(set(passes)) == len(passes)
    eps = next(o for o in described[1]["options"] if o["name"] == "eps")
    assert eps["default"] == 1e-5
    assert eps["type"] == "real"


def test_an_integer_keeps_every_bit_and_a_bool_is_one():
    assert c_abi._option(b"seed", 2**64 - 1).value.integer == -1
    assert c_abi._option(b"seed", 2**53 + 1).value.integer == 2**53 + 1
    assert (c_abi._option(b"flag", True).type, c_abi._option(b"flag", True).value.integer) == (2, 1)


def test_codes_are_those_of_the_header():
    body = re.search(r"typedef enum isobit_dtype {(.*?)}", HEADER.read_text(), re.S)[1]
    codes = re.findall(r"ISOBIT_([A-Z]+)(\d*) = (\d)", body)
    names = {"BF": "bfloat", "F": "float", "I": "int", "U": "uint", "BOOL": "bool"}
    dtypes = {names[kind] + bits: int(number) for kind, bits, number in codes}
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
    library = SimpleNamespace(
        isobit_last_error=lambda: b"what the library said", isobit_call=lambda *_: status
    )
    monkeypatch.setattr(c_abi, "_library", lambda: library)
    with pytest.raises(error, match="what the library said"):
        c_abi.call("elementwise", "fwd")


def test_memory_that_a_context_refuses_is_a_memory_error():
    refuse = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(lambda *_: None)
    address = ctypes.cast(refuse, ctypes.c_void_p)
    context = c_abi.Context(allocator=c_abi.Allocator(address, address))
    zeros, grads = (ctypes.c_float * 20)(), (ctypes.c_float * 5)()
    x = c_abi.Tensor(ctypes.addressof(zeros), 80, c_abi.DTYPES["float32"], 2, (4, 5), (5, 1))
    grad_weight = c_abi.Tensor(ctypes.addressof(grads), 20, x.dtype, 1, (5,), (1,))
    with pytest.raises(MemoryError, match="layernorm backward: "):
        c_abi.call("layernorm", "bwd", context, x=x, grad_y=x, grad_weight=grad_weight)
