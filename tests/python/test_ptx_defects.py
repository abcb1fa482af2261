# SPDX-License-Identifier: Apache-2.0
"""Defects that only nvcc's half of a kernel can hold, planted into simt/cuda or its flags: the lab
must find each on the executor of PTX."""

import os
import re
import subprocess
from pathlib import Path

import kernels
import pytest

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "build" / "release"
CUDA = ROOT / "src" / "isobit" / "simt" / "cuda"
RUNTIME = kernels.OUT / "executor_runtime.o"

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        not (kernels.find_nvcc() and RUNTIME.exists()), reason="needs nvcc, and tools/kernels.py"
    ),
]

ELEMENTWISE = ("elementwise/cuda.cu", "verify elementwise --dtype f32,bf16 --rows 3 --cols 4096")
RMSNORM = ("rmsnorm/cuda_forward.cu", "verify rmsnorm --pass fwd --rows 2 --cols 9000")

# defect: (what finds it, the file in simt/cuda, what is replaced there, by what)
DEFECTS = {
    "a wait that goes on once the copies have landed": (
        ELEMENTWISE,
        "device.h",
        "@!arrived",
        "@arrived",
    ),
    "a bulk copy of 16 bytes too few": (
        *(ELEMENTWISE, "device.h"),
        r'("l"\(from\), )"r"\(bytes\)(, "r"\(detail::shared_address\(arrival\)\))',
        r'\1"r"(bytes - 16)\2',
    ),
    "an mbarrier that expects one arrival more": (
        *(ELEMENTWISE, "device.h"),
        r'"r"\(count\)',
        '"r"(count + 1)',
    ),
    "an mbarrier that expects one arrival fewer": (
        *(ELEMENTWISE, "device.h"),
        r'"r"\(count\)',
        '"r"(count - 1)',
    ),
    "a launch that loses its clusters": (
        *(RMSNORM, "launch.h"),
        r"shape\.cluster > 1 \? 1 : 0",
        "0",
    ),
    "a conversion that cuts": (ELEMENTWISE, "device.h", "cvt.rn.bf16", "cvt.rz.bf16"),
    "shuffles among 16 lanes": (
        *(RMSNORM, "device.h"),
        r"__shfl_xor_sync\(lanes, value, distance\)",
        "__shfl_xor_sync(lanes, value, distance, 16)",
    ),
    "the wrong block of a cluster": (RMSNORM, "device.h", r'"r"\(rank\)', '"r"(0)'),
    "more shared memory than was asked for": (
        *(RMSNORM, "launch.h"),
        r"counter\.bytes\(\) > 48 << 10",
        "false",
    ),
}


def library(folder, source, flags=kernels.FLAGS, overlay=()):
    """libisobit_ptx.so with one source compiled anew."""
    changed = folder / "changed.o"
    nvcc = kernels.find_nvcc()
    command = [nvcc, *flags, f'-DISOBIT_VERSION="{kernels.VERSION}"', *overlay]
    command += [f"-I{ROOT / 'src'}", "-gencode", "arch=compute_90a,code=compute_90a"]
    command += ["--compress-mode=none", "-Xcompiler", "-fPIC,-fvisibility=hidden", "-c"]
    subprocess.run([*command, source, "-o", changed], check=True)
    objects = [
        changed if each == source else kernels.object_of(each, kernels.EVERY_DAY)
        for each in kernels.sources()
    ]
    made = folder / "libisobit_ptx.so"
    rest = [RUNTIME, RELEASE / "libisobit_executor.a", RELEASE / "libisobit_all.a"]
    link = ["-Xlinker", "--exclude-libs,ALL,--no-undefined,--gc-sections"]
    command = [nvcc, "-shared", "-cudart", "none", "-o", made, *objects, *rest, *link]
    subprocess.run(list(map(str, command)), check=True)
    return made


def verified(made, words):
    settings = {"ISOBIT_PTX_LIBRARY": str(made), "ISOBIT_EXECUTOR": "instructions=20000000"}
    env = os.environ | settings  # so few, because some defects never end
    call = [RELEASE / "isobit", *words.split(), "--variant", "all", "--device", "ptx"]
    return subprocess.run(call, capture_output=True, text=True, env=env)


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_of_these_defects_would_be_found(defect, tmp_path):
    (name, words), header, pattern, replacement = DEFECTS[defect]
    text = (CUDA / header).read_text()
    planted = re.sub(pattern, replacement, text)
    assert planted != text
    overlay = tmp_path / "isobit" / "simt" / "cuda" / header
    overlay.parent.mkdir(parents=True)
    overlay.write_text(planted)
    source = ROOT / "src" / "isobit" / "ops" / name
    done = verified(library(tmp_path, source, overlay=[f"-I{tmp_path}"]), words)
    assert done.returncode != 0, done.stdout


def test_a_lost_fmad_false_would_be_found(tmp_path):
    source = ROOT / "src" / "isobit" / "ops" / ELEMENTWISE[0]
    flags = [flag for flag in kernels.FLAGS if flag != "-fmad=false"]
    done = verified(library(tmp_path, source, flags), ELEMENTWISE[1])
    assert "-fmad=false" in done.stdout + done.stderr


def test_without_a_defect_nothing_is_found(tmp_path):
    for name, words in (ELEMENTWISE, RMSNORM):
        done = verified(library(tmp_path, ROOT / "src" / "isobit" / "ops" / name), words)
        assert done.returncode == 0, done.stdout + done.stderr
