# SPDX-License-Identifier: Apache-2.0
"""What tools/faces.py makes of the operators' descriptions is what is checked in."""

import ctypes
import re
import shutil
import sys

import faces
import pages
import pytest


@pytest.fixture
def run(monkeypatch, capsys):
    """tools/faces.py with some flags: its exit status and what it says."""

    def call(*flags):
        monkeypatch.setattr(sys, "argv", ["faces.py", *flags])
        status = faces.main()
        return status, capsys.readouterr().out

    return call


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A copy of the generated files, of which the tool believes that they are the tree's."""
    for name in (*faces.FACES, ".clang-format"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(pages.ROOT / name, tmp_path / name)
    monkeypatch.setattr(faces, "ROOT", tmp_path)
    return tmp_path


def test_the_generated_files_are_fresh(run):
    assert run("--check") == (0, "")


@pytest.mark.parametrize("name", faces.FACES)
def test_a_stale_file_is_reported_and_rewritten(run, tree, name):
    fresh = (tree / name).read_text()
    (tree / name).write_text(fresh.replace("transpose", "transposed"))
    stale = (tree / name).read_text()
    assert stale != fresh
    assert run("--check") == (1, f"stale; run `tools/faces.py` to write them: {name}\n")
    assert (tree / name).read_text() == stale
    assert run() == (0, f"written: {name}\n")
    assert (tree / name).read_text() == fresh


def test_a_missing_file_is_stale(run, tree):
    name = next(iter(faces.FACES))
    (tree / name).unlink()
    assert run("--check")[0] == 1
    assert run() == (0, f"written: {name}\n")
    assert run("--check") == (0, "")


def test_every_pass_is_described():
    described = faces.operators()
    definitions = (pages.ROOT / "src/isobit/ops").glob("*/*.cpp")
    folders = {path.stem for path in definitions if path.stem == path.parent.name}
    assert {each["op"] for each in described} == folders
    for each in described:
        dims = [dim["name"] for dim in each["dims"]]
        assert each["pass"] in ("fwd", "bwd")
        assert each["version"] >= 1
        assert each["summary"].endswith(".")
        assert len(set(dims)) == len(dims)
        assert sum(dim["batch"] for dim in each["dims"]) <= 1
        for argument in each["arguments"]:
            assert argument["dims"] and set(argument["dims"]) <= set(dims)
            assert argument["meaning"] and argument["role"] in ("input", "output")
        for option in each["options"]:
            assert option["meaning"] and bool(option["choices"]) == (
                option["type"] in ("choice", "yes_no")
            )


def test_every_pass_has_its_functions():
    library = ctypes.CDLL(str(faces.LIBRARY))
    header = (pages.ROOT / "include/isobit/operators.h").read_text()
    declared = set(re.findall(r"^ISOBIT_API .*?(isobit_\w+)\(", header, re.M))
    assert declared == {f"isobit_{entry.name}" for entry in faces.entries(faces.operators())}
    assert all(getattr(library, name) for name in declared)
