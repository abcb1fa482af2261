# SPDX-License-Identifier: Apache-2.0
"""What `isobit doctor` says of libisobit_cuda.so, whatever lies in its place."""

import os
import subprocess
from pathlib import Path

import pytest

LAB = Path(__file__).resolve().parents[2] / "build" / "release" / "isobit"


def doctor(library):
    env = {**os.environ, "ISOBIT_CUDA_LIBRARY": str(library), "ISOBIT_PYTHON": "true"}
    said = subprocess.run([LAB, "doctor"], env=env, capture_output=True, text=True).stdout
    return next(line for line in said.splitlines() if " cuda: " in line)


def library(tmp_path, source):
    path = tmp_path / "libisobit_cuda.so"
    (tmp_path / "it.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, tmp_path / "it.c"], check=True)
    return path


def test_missing_file_is_named(tmp_path):
    assert str(tmp_path / "none.so") in doctor(tmp_path / "none.so")


def test_file_that_is_no_library_is_named(tmp_path):
    path = tmp_path / "text.so"
    path.write_text("no library")
    assert str(path) in doctor(path)


@pytest.mark.parametrize(
    "source",
    [
        "int something_else;",
        "const void* isobit_cuda_library(const char* version) { return 0; }",
    ],
)
def test_library_of_another_version_is_refused(tmp_path, source):
    line = doctor(library(tmp_path, source))
    assert line.startswith("missing")
    assert "is not from Isobit" in line
