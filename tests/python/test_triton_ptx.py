# SPDX-License-Identifier: Apache-2.0
"""Triton's kernels, compiled for sm_90 and executed as PTX: what they compute, and what is counted.

No GPU is needed, nor Triton's interpreter.
"""

import json
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
triton = pytest.importorskip("triton", reason="Triton is not installed")

import triton.language as tl  # noqa: E402
from untraced import untraced  # noqa: E402

from isobit.lab.executor import TARGET, Executor  # noqa: E402
from isobit.ops.triton_variants import Launch  # noqa: E402

LAB = Path(__file__).resolve().parents[2] / "build" / "release" / "isobit"
LIBRARY = LAB.with_name("libisobit_ptx.so")

pytestmark = pytest.mark.skipif(
    not LIBRARY.exists(), reason="libisobit_ptx.so is not built: tools/kernels.py needs nvcc"
)


@triton.jit
def vector_add(x, y, z, BLOCK: tl.constexpr):
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + at, tl.load(x + at) + tl.load(y + at))


@triton.jit
def reversed_copy(x, y, last, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + (last - at) * 8))


@triton.jit
def textbook_exponential(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.exp(tl.load(x + at)))


def counted(launch):
    """What the executor counts of a launch."""
    executor = Executor(str(LIBRARY))
    executor.counters()
    with untraced():
        launch.compiled(TARGET)  # which Triton keeps
    executor.launch(launch)
    return executor.counters()


def test_counters_of_a_vector_add_are_those_that_it_must_have():
    x, y, z = torch.randn(1024), torch.randn(1024), torch.full((1024,), 99.0)
    arguments = {"x": x, "y": y, "z": z, "BLOCK": 256}
    (kernel,) = counted(Launch(vector_add, (1, 4), arguments, warps=2))
    assert torch.equal(z, x + y)
    assert kernel["kernel"] == "vector_add"
    assert (kernel["launches"], kernel["blocks"], kernel["threads"]) == (1, 4, 64)
    # Of eight warps each has 16 bytes a lane of each array, in 16 sectors.
    sectors = {"least": 256, "sectors": 256, "distinct": 256}
    assert kernel["loads"] == {"requests": 16, "wide": 16, "bytes": 8192} | sectors
    sectors = {"least": 128, "sectors": 128, "distinct": 128}
    assert kernel["stores"] == {"requests": 8, "wide": 8, "bytes": 4096} | sectors
    assert kernel["by_kind"]["f32"] == 8 * 4
    assert kernel["by_kind"]["load"] == 16 and kernel["by_kind"]["store"] == 8
    assert kernel["awaited_bytes"] == 8 * 2 * 512  # both loads are on their way
    for none in ("shared_requests", "local_requests", "barriers", "shuffles"):
        assert kernel[none] == 0
    assert 0 < kernel["registers"] <= 64


def test_scattered_elements_take_a_sector_each():
    x, y = torch.arange(256, dtype=torch.float32), torch.zeros(32)
    arguments = {"x": x, "y": y, "last": 31, "BLOCK": 32}
    (kernel,) = counted(Launch(reversed_copy, (1,), arguments, warps=1))
    assert torch.equal(y, x[::8].flip(0))
    assert kernel["loads"]["sectors"] == 32 and kernel["loads"]["least"] == 4
    assert kernel["stores"]["sectors"] == kernel["stores"]["least"] == 4


def test_arrays_within_larger_ones_are_reached_as_they_are_aligned():
    """Triton takes vectors of 16 bytes only of addresses that are multiples of 16."""
    x, y, z = torch.randn(1025)[1:], torch.randn(1024), torch.zeros(1024)
    arguments = {"x": x, "y": y, "z": z, "BLOCK": 256}
    (kernel,) = counted(Launch(vector_add, (1, 4), arguments, warps=2))
    assert torch.equal(z, x + y)
    assert kernel["loads"]["wide"] == 8 < kernel["loads"]["requests"]


def test_what_changes_bits_is_refused_by_its_name():
    arguments = {"x": torch.zeros(32), "y": torch.zeros(32), "BLOCK": 32}
    with pytest.raises(RuntimeError, match=r"ex2\.approx\.f32: its result is an approximation"):
        counted(Launch(textbook_exponential, (1,), arguments, warps=1))


def test_memory_that_a_kernel_was_not_given_is_a_fault():
    x, y, z = torch.zeros(1024), torch.zeros(1024), torch.zeros(1020)
    arguments = {"x": x, "y": y, "z": z, "BLOCK": 256}
    with pytest.raises(RuntimeError, match=r"st\.global\.v4\.b32, in vector_add"):
        counted(Launch(vector_add, (1, 4), arguments, warps=2))


def profiled(call, *words):
    lab = subprocess.run([LAB, "profile", *call.split(), *words], capture_output=True, text=True)
    assert lab.returncode == 0, lab.stderr
    return lab.stdout


ROWS = "elementwise,layernorm,rmsnorm --pass fwd,bwd --kind increment --rows 20 --cols 530"


@pytest.mark.parametrize(
    ("call", "count"),
    [
        (ROWS + " --dtype f32,bf16 --variant all", 2 * (3 + 4 + 4)),
        ("layernorm,rmsnorm --pass fwd,bwd --rows 2 --cols 70 --input constant --offset 3", 4),
        pytest.param(
            "activation,softmax --pass fwd,bwd --rows 3 --cols 70", 4, marks=pytest.mark.full
        ),
        pytest.param("transpose --dtype f32,bf16 --variant all", 4, marks=pytest.mark.full),
        pytest.param("scan --length 5000 --variant all", 2, marks=pytest.mark.full),
        pytest.param(
            "matmul --pass fwd,bwd --m 40 --n 50 --k 70 --dtype f32,bf16", 4, marks=pytest.mark.full
        ),
        pytest.param(
            "attention --pass fwd,bwd --seq-q 20 --seq-k 70 --dtype f32,bf16",
            4,
            marks=pytest.mark.full,
        ),
    ],
)
def test_compiled_kernels_have_the_bits_of_the_library(call, count):
    lines = [
        json.loads(line) for line in profiled(call, "--device", "triton", "--json").splitlines()
    ]
    assert len(lines) == count
    for line in lines:
        assert line["device"] == "triton" and line["executor"] == "ptx"
        assert line["triton"] == triton.__version__
        assert line["canonical"] and line["passed"], line
        assert all(kernel["instructions"] for kernel in line["kernels"])


def test_a_table_has_ours_beside_tritons():
    told = profiled("rmsnorm --pass fwd --rows 4 --cols 600", "--device", "ptx,triton")
    assert "rmsnorm fwd 4x600 f32 row_per_program on triton warps=1" in told
    assert "forward_kernel" in told and " on ptx " in told
    assert f"Triton {triton.__version__} compiled its kernels for sm_90" in told
    assert "1 calls\nwith the library's bits, 0 with others, 0 of them wrong" in told
