# SPDX-License-Identifier: Apache-2.0
"""Mutants apply to the sources as they are, and what the tests say of one is read rightly."""

import json
from pathlib import Path

import mutants
import pytest

PATCHES = sorted([*mutants.PATCHES.glob("*.patch"), *mutants.PLANTED.glob("*.patch")])
MINUS_ZERO = "minus_zero_leaves_a_sum"


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_mutant_applies_and_says_what_it_is(path, tmp_path):
    mutant = mutants.Mutant(path)
    mutant.overlay(tmp_path / "overlay")
    assert mutant.defect.endswith(".")
    assert all(source.endswith((".cpp", ".cu")) for source, *_ in mutant.units)  # no header
    for file in mutant.files:
        planted = (tmp_path / "overlay" / file).read_text()
        assert planted != (mutants.ROOT / file).read_text()


def test_mutant_that_no_longer_applies_is_an_error(tmp_path):
    path = tmp_path / "stale.patch"
    text = (mutants.PATCHES / f"{MINUS_ZERO}.patch").read_text()
    path.write_text(text.replace("depth_ > 0", "depth_ > 1"))
    with pytest.raises(mutants.Broken, match="no longer applies"):
        mutants.Mutant(path).overlay(tmp_path / "overlay")


def test_build_that_lacks_a_program_still_plants_into_the_others(tmp_path):
    (tmp_path / "compile_commands.json").write_text("[]")
    build = mutants.Build(tmp_path)
    with pytest.raises(mutants.Broken, match="no isobit_race_tests"):
        build.link_of("isobit_race_tests")


def test_source_of_several_instruction_sets_gets_an_object_for_each(tmp_path, monkeypatch):
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nfor last; do :; done\necho "$*" > "$last"\n')
    compiler.chmod(0o755)
    source, isas = "src/isobit/simd/row_sums.cpp", ("scalar", "avx2", "avx512")
    commands = [
        {
            "file": str(mutants.ROOT / source),
            "command": f"{compiler} -DISOBIT_ISA={isa} -c {source} -o {isa}.o",
        }
        for isa in isas
    ]
    (tmp_path / "compile_commands.json").write_text(json.dumps(commands))
    monkeypatch.setattr(mutants.shutil, "which", lambda program: None)
    build = mutants.Build(tmp_path)
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    objects = {isa: build.compile([source, isa], overlay) for isa in isas}
    for isa, (original, mutated) in objects.items():
        assert original == f"{isa}.o"
        assert f"-DISOBIT_ISA={isa} " in Path(mutated).read_text()


# What is compiled is the source, and a test program that finds nothing.
COMPILER = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in -c) source=$2 ;; -o) made=$2 ;; esac
  shift
done
if [ "$source" ]; then cat "$source" >"$made"
else printf '#!/bin/sh\\nexit 0\\n' >"$made"; chmod +x "$made"
fi
"""


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        ("src/isobit/simd/row_sums.h", ("SURVIVED", "Nobody asks.")),
        (
            "src/isobit/core/check.cpp",
            ("BROKEN", "the patch changes nothing that src/isobit/core/check.cpp compiles"),
        ),
    ],
)
def test_mutant_that_its_unit_does_not_use_is_broken(tmp_path, monkeypatch, unit, said):
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    folder = tmp_path / "release"
    folder.mkdir()
    source = str(mutants.ROOT / unit)
    command = {"file": source, "command": f"{compiler} -c {source} -o unit.o"}
    (folder / "compile_commands.json").write_text(json.dumps([command]))
    monkeypatch.setattr(mutants.shutil, "which", lambda program: None)
    monkeypatch.setattr(mutants.Build, "link_of", lambda *_: [str(compiler), "unit.o", "-o", "it"])
    patched = "src/isobit/simd/row_sums.h"
    lines = (mutants.ROOT / patched).read_text().splitlines()[:4]
    path = tmp_path / "nobody_asks.patch"
    path.write_text(
        f"SPDX-License-Identifier: Apache-2.0\nNobody asks.\nUnit: {unit}\n"
        f"--- a/{patched}\n+++ b/{patched}\n@@ -1,4 +1,5 @@\n {lines[0]}\n+// One line more.\n"
        + "".join(f" {line}\n" for line in lines[1:])
    )
    assert mutants.verdict(mutants.Mutant(path), mutants.Build(folder))[:2] == said


def program(tmp_path, script):
    path = tmp_path / "tests"
    path.write_text(f"#!/bin/sh\necho '[ RUN      ] A.B'\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        ("exit 0", None),
        ("echo '[  FAILED  ] A.B (1 ms)'; echo '[  FAILED  ] A.B'; exit 1", ("A.B", "failed")),
        ("echo '[       OK ] A.B (1 ms)'; echo '[ RUN      ] C.D'; kill $$", ("C.D", "crashed")),
        ("exec sleep 60", ("A.B", "hung")),
        ("for i in 1 2 3 4 5; do sleep 0.3; echo '[       OK ] A.B'; done", None),  # 1.5 s
    ],
)
def test_first_failure_is_named(tmp_path, monkeypatch, script, failure):
    monkeypatch.setattr(mutants, "SECONDS", 1)
    assert mutants.first_failure(program(tmp_path, script), "*") == failure


@pytest.mark.parametrize(("flags", "lacks"), [("avx512dq", "amx"), ("avx512dq amx_bf16", None)])
def test_mutant_of_amx_is_left_out_where_there_is_none(monkeypatch, flags, lacks):
    monkeypatch.setattr(mutants, "processor_flags", flags.split)
    mutant = mutants.Mutant(mutants.PATCHES / "amx_runs_never_end.patch")
    build = mutants.Build.__new__(mutants.Build)
    build.commands = {("a.cpp", "avx512"): []}
    found = mutants.missing_isa(mutant, build)
    assert found == lacks


def test_chosen_are_changed_ones_and_a_few_more(tmp_path, monkeypatch):
    all_mutants = [mutants.Mutant(path) for path in PATCHES]
    changed = next(mutant for mutant in all_mutants if mutant.name == MINUS_ZERO)
    monkeypatch.setattr(mutants, "LOG", tmp_path / "LOG.md")
    assert len(set(mutants.chosen(all_mutants))) == mutants.MOST_CHANGED
    states = [mutant.state() for mutant in all_mutants if mutant is not changed]
    (tmp_path / "LOG.md").write_text("".join(f"| {state} |\n" for state in states))
    chosen = mutants.chosen(all_mutants)
    assert changed in chosen
    assert len(set(chosen)) == 1 + mutants.BY_COMMIT
