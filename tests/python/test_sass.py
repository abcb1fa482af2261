# SPDX-License-Identifier: Apache-2.0
"""ptxas's machine code on the executor, through the lab: bits, schedules, approximations, refusals;
and how it becomes text."""

import os
import struct
import subprocess

import kernels
import machine_code
import pytest
from test_ptx import RELEASE, SMALL, isobit

NEEDS_LIBRARY = pytest.mark.skipif(
    not (RELEASE / "libisobit_sass.so").exists(),
    reason="libisobit_sass.so is not built: tools/kernels.py needs nvcc and cuobjdump",
)
OPERATIONS = [
    ("elementwise", "fwd"),
    ("layernorm", "fwd"),
    ("layernorm", "bwd"),
    ("rmsnorm", "fwd"),
    ("rmsnorm", "bwd"),
    ("transpose", "fwd"),
]


def parity(op, direction, *words, **settings):
    call = ("parity", op, "--pass", direction, "--device", "cpu,sass", *SMALL, *words)
    return isobit(*call, **settings)


@NEEDS_LIBRARY
@pytest.mark.parametrize(
    "dtype",
    ["f32", "bf16", *(pytest.param(name, marks=pytest.mark.full) for name in ("f16", "f64"))],
)
@pytest.mark.parametrize(("op", "direction"), OPERATIONS)
def test_bits_are_the_processors(op, direction, dtype):
    done = parity(op, direction, "--dtype", dtype)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on sass" in done.stdout


@NEEDS_LIBRARY
@pytest.mark.parametrize(("order", "early"), [("reversed", 1), ("random", 0), ("starving", 0)])
def test_no_schedule_changes_a_bit(order, early):
    settings = {"order": order, "seed": 3, "resident": 3, "early": early, "multiprocessors": 4}
    for op, direction in (("layernorm", "fwd"), ("rmsnorm", "bwd"), ("transpose", "fwd")):
        done = parity(op, direction, **settings)
        assert done.returncode == 0, done.stdout + done.stderr


@NEEDS_LIBRARY
@pytest.mark.parametrize("off", [1, -1])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_no_bit_depends_on_the_last_bit_of_an_approximation(dtype, off):
    for op, direction in (("layernorm", "fwd"), ("rmsnorm", "bwd")):
        done = parity(op, direction, "--dtype", dtype, approximation=off)
        assert done.returncode == 0, done.stdout + done.stderr


@NEEDS_LIBRARY
def test_an_approximation_that_is_further_off_is_seen():
    assert "the bits differ" in parity("rmsnorm", "bwd", approximation=2).stdout


@NEEDS_LIBRARY
def test_the_long_way_of_a_division_has_the_same_bits():
    for op, direction in (("layernorm", "fwd"), ("rmsnorm", "bwd")):
        done = parity(op, direction, long_divisions=1)
        assert done.returncode == 0, done.stdout + done.stderr


@NEEDS_LIBRARY
@pytest.mark.parametrize("rows", ["--input huge1e20", "--input denormal", "--offset 1"])
def test_rare_rows_have_the_same_bits(rows):
    words = ("--variant", "all", "--device", "sass", *SMALL, *rows.split())
    done = isobit("verify", "layernorm,rmsnorm", "--pass", "fwd,bwd", *words)
    assert done.returncode == 0, done.stdout + done.stderr


@NEEDS_LIBRARY
@pytest.mark.parametrize("verb", ["bench", "tune"])
def test_what_measures_time_refuses_it(verb):
    done = isobit(verb, "elementwise", "--device", "sass", "--quick", *SMALL)
    assert done.returncode != 0
    assert "sass" in done.stderr


@NEEDS_LIBRARY
def test_doctor_and_list_name_it():
    said = "sass: what ptxas made of the GPU kernels, executed by an executor"
    assert said in isobit("doctor").stdout
    assert "sass, which executes what ptxas made of that" in isobit("list").stdout


@NEEDS_LIBRARY
def test_the_executor_knows_every_instruction_of_the_kernels():
    """Kernels are translated as they are launched; this translates those, too, that no case here
    launches. Variants for tensor cores, which have files of their own, decline there."""
    texts = [
        file
        for source in kernels.sources()
        if source.name
        not in ("cuda_tensor.cu", "cuda_wgmma.cu", "cuda_mma.cu", "cuda_mma_backward.cu")
        and (file := kernels.object_of(source, kernels.EVERY_DAY).with_suffix(".sass")).exists()
    ]
    env = os.environ | {"ISOBIT_MACHINE_CODE": ":".join(map(str, texts))}
    call = [RELEASE / "isobit_executor_tests", "--gtest_filter=SassKernels.*"]
    done = subprocess.run(call, capture_output=True, text=True, env=env)
    assert "[  PASSED  ] 1 test" in done.stdout, done.stdout


# ---- how machine code becomes text -------------------------------------------------------------


def test_numbers_are_those_of_the_instruction():
    assert machine_code.plain("FMUL R0, R0.reuse, 0.0625", "3d800000") == "FMUL R0, R0, 0f3d800000"
    assert (
        machine_code.plain("@P0 FSEL R1, R2, +QNAN , !P1", "7fc00000")
        == "@P0 FSEL R1, R2, 0f7fc00000 , !P1"
    )
    assert (
        machine_code.plain("HFMA2.MMA R9, -RZ, RZ, 0, 5.9604644775390625e-08", "00000001")
        == "HFMA2.MMA R9, -RZ, RZ, 0f00000001"
    )
    assert machine_code.plain("VIADD R6, R8, 0xffffffe", "0ffffffe") == "VIADD R6, R8, 0xffffffe"


def line(at, text, immediate="00000000"):
    return (
        f"        /*{at:04x}*/  {text} ;  /* 0x{immediate}00037b82 */\n  /* 0x000ff00000000800 */\n"
    )


def test_instructions_lie_one_behind_the_other():
    elf = struct.pack("<16s24xQ10xHHH", b"\x7fELF", 64, 64, 1, 0) + bytes(64)
    body = "Function : k\n" + line(0, "MOV R1, 0x5", "00000005") + line(16, "@!P0 EXIT")
    text = "".join(machine_code.functions(body, elf))
    assert text == ".function k\n.threads 1024\n.parameters 0\nMOV R1, 0x5\n@!P0 EXIT\n"
    with pytest.raises(ValueError, match="one behind the other"):
        list(machine_code.functions("Function : k\n" + line(16, "EXIT"), elf))


def test_the_most_threads_are_read():
    hidden = struct.pack("<BBH", 3, 7, 99)
    most = struct.pack("<BBHIII", 4, machine_code.MAX_THREADS, 12, 384, 1, 1)
    assert machine_code.most_threads(hidden + most) == 384
    assert machine_code.most_threads(hidden) == 1024
