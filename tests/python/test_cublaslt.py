# SPDX-License-Identifier: Apache-2.0
"""What the lab says where there is no cuBLASLt. Its calls are tests/simt/cublaslt_test.cpp's."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "build" / "release"
CALL = [RELEASE / "isobit", "verify", "matmul", "--pass", "fwd", "--variant", "cublaslt"]
EXTENTS = ["--dtype", "f32", "--m", "3", "--n", "4", "--k", "5"]


def said(device, library):
    env = os.environ | {"ISOBIT_PYTHON": "true", "ISOBIT_CUBLASLT_LIBRARY": library}
    if device == "cuda":
        env["ISOBIT_CUDA_LIBRARY"] = str(RELEASE / "libisobit_ptx.so")
    call = [*CALL, "--device", device, *EXTENTS]
    done = subprocess.run(call, capture_output=True, text=True, env=env)
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def test_the_emulator_has_none_but_the_tests():
    for library in ("", "libm.so.6"):
        assert "the emulator has no cuBLASLt" in said("emu", library)


@pytest.mark.skipif(
    not (RELEASE / "libisobit_ptx.so").exists(),
    reason="libisobit_ptx.so is not built: tools/kernels.py needs nvcc",
)
def test_what_to_install_is_said():
    missing = said("cuda", "libno_such_cublasLt.so")
    assert "cuBLASLt is missing (libno_such_cublasLt.so: cannot open" in missing
    assert "install CUDA's cuBLAS" in missing and "ISOBIT_CUBLASLT_LIBRARY" in missing
    assert "the library found as cuBLASLt has no cublasLtCreate" in said("cuda", "libm.so.6")
