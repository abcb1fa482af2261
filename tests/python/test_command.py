# SPDX-License-Identifier: Apache-2.0
"""The command line, called wrongly or where it cannot write: it says so, and says it by its exit
status."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from isobit import command
from isobit._library import library_path


def isobit(*flags, **kwargs):
    return subprocess.run(
        [library_path().parent / "isobit", *flags], stderr=subprocess.PIPE, text=True, **kwargs
    )


@pytest.fixture
def x(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    return f"x={tmp_path}/x.npy"


@pytest.mark.parametrize("flags", [["--json"], []], ids=["json", "table"])
@pytest.mark.parametrize("verb", ["verify", "list"])
def test_a_full_disk_is_an_error(verb, flags):
    case = ["--rows", "2", "--cols", "8", "--variant", "simd"] if verb == "verify" else []
    with Path("/dev/full").open("w") as full:
        done = isobit(verb, "layernorm", *case, *flags, stdout=full)
    assert done.returncode == 1
    assert done.stderr.startswith("isobit: cannot write ")
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("name", "flags"),
    [("info.json", "info"), ("verify.jsonl", "verify vector_norm --rows 2 --cols 8")],
)
def test_a_file_that_cannot_be_written_is_named(name, flags, tmp_path):
    (tmp_path / name).mkdir()
    done = isobit(*flags.split(), "--out", tmp_path, stdout=subprocess.DEVNULL)
    assert done.stderr == f"isobit: {tmp_path}/{name}: cannot be written\n"
    assert done.returncode == 1


@pytest.mark.parametrize(
    "given",
    [
        "--eps 1,2",
        "--eps 1 --eps 2",
        "--threads 1,2",
        "--isa auto,scalar",
        "--pass fwd,bwd",
        "--device cpu,emu",
        "--dtype f32,f16",
        "--y-dtype f32,f16",
    ],
)
def test_run_refuses_several_values_of_which_it_would_take_one(given, x):
    done = isobit("run", "layernorm", "--in", x, *given.split(), stdout=subprocess.DEVNULL)
    assert done.stderr == f"isobit: {given.split()[0]} has 2 values; run takes one\n"
    assert done.returncode == 2


def test_run_refuses_one_input_twice(x):
    done = isobit("run", "layernorm", "--in", x, "--in", x, stdout=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (2, "isobit: --in x is given twice\n")


def test_run_refuses_a_dtype_that_the_file_does_not_have(x):
    done = isobit("run", "layernorm", "--in", x, "--dtype", "f16", stdout=subprocess.DEVNULL)
    assert done.stderr == "isobit: --dtype is f16; the file of x has f32\n"
    assert done.returncode == 2
    done = isobit("run", "layernorm", "--in", x, "--dtype", "f32", stdout=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_without_the_command_is_named(tmp_path, monkeypatch):
    (tmp_path / library_path().name).touch()
    monkeypatch.setenv("ISOBIT_LIBRARIES", str(tmp_path))
    with pytest.raises(SystemExit) as caught:
        command.main()
    assert str(caught.value) == f"isobit: {tmp_path}/isobit: No such file or directory"


def test_an_extra_argument_that_one_pass_lacks_is_refused_by_the_name_of_the_pass():
    case = ["--rows", "2", "--cols", "8", "--variant", "simd", "--with", "residual"]
    done = isobit("verify", "layernorm", *case, stdout=subprocess.DEVNULL)
    assert done.stderr.startswith("isobit: no layernorm bwd extra argument 'residual'")
    assert done.returncode == 2
