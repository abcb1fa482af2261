# SPDX-License-Identifier: Apache-2.0
"""What `isobit doctor` says of libisobit_cuda.so, whatever lies in its place."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "build" / "release" / "isobit"
VERSION = (ROOT / "VERSION").read_text().strip()


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
    assert f"is not from this build of Isobit {VERSION}" in line
    assert "build it again (`make kernels`" in line


def test_library_of_this_version_with_other_structs_is_refused(tmp_path):
    """It read other memory in the place of an argument, and gave wrong bits without a word."""
    source = f"""
#include <string.h>
const void* isobit_cuda_library(const char* identity) {{
  static const char device[256];
  return strcmp(identity, "{VERSION}") == 0 ||
    strcmp(identity, "{VERSION} 0123456789abcdef") == 0 ? device : 0;
}}"""
    line = doctor(library(tmp_path, source))
    assert line.startswith("missing")
    assert "is not from this build of Isobit" in line


@pytest.fixture
def tree(tmp_path):
    """A copy of the headers, and of what makes a fingerprint of them."""
    shutil.copytree(
        ROOT / "src" / "isobit",
        tmp_path / "src" / "isobit",
        ignore=lambda folder, names: [
            name for name in names if "." in name and not name.endswith(".h")
        ],
    )
    shutil.copytree(ROOT / "cmake", tmp_path / "cmake")
    return tmp_path


def fingerprint(tree):
    """As the script makes it, which the build asks too."""
    made = tree / "fingerprint.h"
    script = tree / "cmake" / "interface.cmake"
    subprocess.run(["cmake", f"-DFILE={made}", "-P", script], check=True)
    return re.fullmatch(r'#define ISOBIT_INTERFACE "([0-9a-f]{16})"\n', made.read_text())[1]


def test_a_changed_struct_changes_the_fingerprint_and_a_comment_does_not(tree):
    before = fingerprint(tree)
    problem = tree / "src/isobit/ops/matmul/problem.h"
    text = problem.read_text()
    problem.write_text(text.replace("// Calls of matmul after", "// Those of matmul after"))
    assert fingerprint(tree) == before
    problem.write_text(text.replace("double alpha = 1, beta = 0;", "double beta = 0, alpha = 1;"))
    assert fingerprint(tree) != before
    problem.write_text(text)
    assert fingerprint(tree) == before
    kernels = tree / "src/isobit/ops/matmul/cpu_kernels.h"  # no other library reads those
    kernels.write_text(kernels.read_text() + "struct More {};\n")
    assert fingerprint(tree) == before


def included(header, seen):
    """All of the project's headers that one includes, itself too."""
    if header not in seen:
        seen.add(header)
        for name in re.findall(r'#include "(isobit/[^"]+)"', header.read_text()):
            included(ROOT / "src" / name, seen)
    return seen


def test_no_header_that_structs_come_from_is_left_out_of_the_fingerprint(tree):
    """Whatever a Problem is made of: a new header cannot be forgotten."""
    headers = set()
    for problem in (ROOT / "src/isobit").rglob("problem.h"):
        included(problem, headers)
    included(ROOT / "src/isobit/dispatch/device_library.h", headers)
    assert len(headers) > 20
    before = fingerprint(tree)
    for header in headers:
        copy = tree / header.relative_to(ROOT)
        text = copy.read_text()
        copy.write_text(text + "struct More {};\n")
        assert fingerprint(tree) != before, header
        copy.write_text(text)
