# SPDX-License-Identifier: Apache-2.0
"""The adapters' binaries need what every PyTorch and glibc have, and failures to load say so."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import isobit.torch  # noqa: F401, what is tested must load
from isobit._library import library_path
from isobit.torch import adapters

FOLDER = library_path().parent
GLIBC = (2, 34)  # of Debian 12 is 2.36
# What PyTorch 2.11 has. A symbol more is a decision: does 2.11 have it?
SHIM = re.compile(
    r"aoti_torch_\w+|torch_(list|get|library|call|parallel|from|delete|exception)_\w+"
)


def undefined(library):
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", library], check=True, capture_output=True, text=True
    )
    return [line.split()[-1] for line in listed.stdout.splitlines()]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_adapters_need_stable_symbols_only(device):
    symbols = undefined(FOLDER / f"isobit_torch_{device}.so")
    assert not [s for s in symbols if s.startswith(("Py", "_Py"))]
    assert not [s for s in symbols if s.startswith("_Z") and re.search("c10|torch|2at", s)]
    assert any(s == "torch_library_impl" for s in symbols)
    for symbol in symbols:
        if "torch" in symbol:
            assert SHIM.fullmatch(symbol), symbol
        if version := re.search(r"@GLIBC_(\d+)\.(\d+)", symbol):
            assert tuple(map(int, version.groups())) <= GLIBC, symbol


def test_the_cuda_adapter_asks_for_one_symbol_of_the_cuda_library():
    cpu = set(undefined(FOLDER / "isobit_torch_cpu.so"))
    only = {s for s in undefined(FOLDER / "isobit_torch_cuda.so") if "torch" in s} - cpu
    assert "aoti_torch_get_current_cuda_stream" in only
    libtorch = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", libtorch], check=True, capture_output=True, text=True
    )
    in_cpu_library = {line.split()[-1] for line in listed.stdout.splitlines()}
    if torch.version.cuda is None:
        assert only - in_cpu_library == {"aoti_torch_get_current_cuda_stream"}


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch has CUDA")
def test_the_cuda_adapter_says_what_a_cpu_pytorch_lacks():
    with pytest.raises(OSError) as caught:
        torch.ops.load_library(FOLDER / "isobit_torch_cuda.so")
    assert "aoti_torch_get_current_cuda_stream" in str(caught.value.__cause__)


@pytest.mark.skipif(torch.version.cuda is None, reason="this PyTorch has no CUDA")
def test_a_pytorch_for_cuda_takes_the_cuda_adapter_without_a_gpu():
    assert not hasattr(adapters, "_declined")
    for name in adapters.NAMES:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"isobit::{name}", "CUDA")


def test_a_cuda_adapter_that_does_not_load_is_told_at_the_call(monkeypatch):
    registered = {}

    class Library:
        def __init__(self, *_arguments):
            pass

        def impl(self, name, function, key):
            registered[name] = function, key

    monkeypatch.setattr(torch.library, "Library", Library)
    monkeypatch.setattr(adapters, "_declined", None, raising=False)
    adapters._decline_cuda("it lies elsewhere")
    function, key = registered["_layer_norm"]
    assert key == "CUDA" and len(registered) == 2 * len(adapters.NAMES)
    with pytest.raises(NotImplementedError, match="cannot use CUDA tensors: it lies elsewhere"):
        function()


def python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_a_second_copy_of_the_adapter_does_no_harm(tmp_path):
    shutil.copy(FOLDER / "isobit_torch_cpu.so", tmp_path)
    code = f"""
import torch, isobit.torch
torch.ops.load_library("{tmp_path}/isobit_torch_cpu.so")
print(isobit.torch.layer_norm(torch.ones(2, 3), 3).sum().item())
"""
    result = python(code, LD_LIBRARY_PATH=str(FOLDER))
    assert result.stdout == "0.0\n", result.stderr


def test_import_errors_say_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(adapters, "library_path", lambda: tmp_path / "libisobit.so")
    with pytest.raises(ImportError, match=r"isobit_torch_cpu.so was not found next to.*make build"):
        adapters.load()
    (tmp_path / "isobit_torch_cpu.so").write_bytes(b"no library")
    with pytest.raises(ImportError, match="make build"):
        adapters.load()

    def missing():
        raise FileNotFoundError("libisobit.so not found in a, b; run `make build`")

    monkeypatch.setattr(adapters, "library_path", missing)
    with pytest.raises(ImportError, match=r"isobit\.torch: libisobit\.so not found in"):
        adapters.load()


def test_an_old_pytorch_is_named(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.9.1")
    with pytest.raises(ImportError, match=r"needs PyTorch 2\.11 or later; this is 2\.9\.1"):
        adapters.load()


def test_operators_of_another_copy_are_named(monkeypatch):
    monkeypatch.setattr(torch.ops, "isobit", object())
    with pytest.raises(ImportError, match="another copy of Isobit is loaded"):
        adapters.load()
