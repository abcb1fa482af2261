# SPDX-License-Identifier: Apache-2.0
"""Plants the defects of tests/mutants/torch into the adapter for the CPU, or into the module for
small calls, and asks the tests that each patch names to find it. Its line `Test:` is what pytest is
given."""

import json
import os
import shlex
import shutil
import subprocess
import sys

import mutants
import pytest

from isobit._library import library_path

FOLDER = library_path().parent
ADAPTER = "isobit_torch_cpu.so"
OF_OTHERS = {
    f"src/isobit/torch/{name}.cpp": "_isobit_fast.abi3.so" for name in ("fast", "fast_records")
}
PATCHES = sorted((mutants.PATCHES / "torch").glob("*.patch"))


class Build(mutants.Build):
    """Of several adapters that compile a source, the commands of this one, and OF_OTHERS."""

    def __init__(self, folder):
        super().__init__(folder)
        for entry in json.loads((folder / "compile_commands.json").read_text()):
            source = os.path.relpath(entry["file"], mutants.ROOT)
            of_adapter = f"{ADAPTER.removesuffix('.so')}.dir" in entry["command"]
            if of_adapter or source in OF_OTHERS:
                self.commands[(source,)] = shlex.split(entry["command"])


@pytest.fixture(scope="module")
def build():
    if not (FOLDER / "compile_commands.json").exists() or not shutil.which("ninja"):
        pytest.skip("the library does not lie where it was built")
    build = Build(FOLDER)
    if ("src/isobit/torch/cpu.cpp",) not in build.commands:
        pytest.skip("the library was built from other sources")
    return build


def named_by(path):
    return next(
        line.removeprefix("Test: ")
        for line in path.read_text().splitlines()
        if line.startswith("Test: ")
    )


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_mutant_applies_and_names_a_test(path, tmp_path):
    mutants.Mutant(path).overlay(tmp_path)
    assert (mutants.ROOT / named_by(path).split("::")[0]).exists()


def planted(mutant, build, folder):
    """A folder of libraries, of which one has the defect."""
    mutant.overlay(folder / "sources")
    (library,) = {OF_OTHERS.get(file, ADAPTER) for file in mutant.files}
    link = list(build.link_of(library))
    for unit in mutant.units:
        original, changed = build.compile(unit[:1], folder / "sources")
        link[link.index(original)] = changed
    libraries = folder / "libraries"
    libraries.mkdir()
    for each in FOLDER.glob("*.so*"):
        if each.name != library:
            (libraries / each.name).symlink_to(each.resolve())
    link[link.index("-o") + 1] = str(libraries / library)
    subprocess.run(link, cwd=FOLDER, check=True)
    return libraries


def found(test, libraries):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    environment = os.environ | dict.fromkeys(
        ("ISOBIT_LIBRARIES", "LD_LIBRARY_PATH"), str(libraries)
    )
    result = subprocess.run(
        command, cwd=mutants.ROOT, env=environment, capture_output=True, text=True
    )
    assert result.returncode in (0, 1), result.stdout  # not what could not be collected
    assert "ImportError" not in result.stdout, result.stdout
    return result.returncode == 1


@pytest.mark.full
@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_mutant_is_found(path, build, tmp_path):
    mutant = mutants.Mutant(path)
    mutant.units = [[file] for file in mutant.files]
    assert found(named_by(path), planted(mutant, build, tmp_path))
