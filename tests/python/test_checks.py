# SPDX-License-Identifier: Apache-2.0
"""The checks of the tree find what they are there to find."""

import json
import subprocess
import time
from pathlib import Path

import check_clang
import check_layers
import check_paths
import pytest
import suite

JUNIT = """<testsuites><testsuite>
<testcase name="good"/>
<testcase name="left out"><skipped/></testcase>
{}</testsuite></testsuites>"""
BAD = """<testcase name="bad"><failure message="">said by pytest</failure></testcase>
<testcase name="worse" status="fail"><failure message=""/><system-out>said by ctest</system-out>
</testcase>
"""


def test_layer_rules_tell_planted_includes_apart():
    assert check_layers.self_test() == []


def test_dead_links_machine_paths_and_long_files_are_found(tmp_path):
    home = "/home" + "/someone"
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("[a](gone.md) [b](page.md#top) `src/gone.h` `a/b`\n")
    (tmp_path / "notes.txt").write_text(f"see {home}/x\n")
    (tmp_path / "long.py").write_text("\n" * 501)
    (tmp_path / "made.h").write_text("// Made by tools/faces.py from descriptions\n" * 501)
    (tmp_path / "quotes.h").write_text("\n" * 501 + "// Made by tools/faces.py\n")
    files = ("docs/page.md", "notes.txt", "long.py", "made.h", "quotes.h")
    paths = [Path(file) for file in files]
    problems = check_paths.check(tmp_path, paths)
    assert [problem.split(":")[0] for problem in problems] == [
        "docs/page.md",
        "docs/page.md",
        "notes.txt",
        "long.py",
        "quotes.h",
    ]


@pytest.mark.full  # whose packages clang is one of
def test_what_gcc_takes_and_clang_does_not_is_found(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(check_clang, "ROOT", tmp_path)
    monkeypatch.setattr(check_clang, "COMMANDS", tmp_path / "compile_commands.json")
    bad, good, unity = tmp_path / "bad.cpp", tmp_path / "good.cpp", tmp_path / "Unity" / "0.cxx"
    bad.write_text(
        "struct P { int a, b; };\nint f(P p) { auto [a, b] = p; return [&] { return a; }() + b; }\n"
    )
    good.write_text("int f(int a) { return [&] { return a; }(); }\n")
    unity.parent.mkdir()
    unity.write_text(f'#include "{bad}"\n')
    entries = [
        {"directory": str(tmp_path), "file": str(file), "command": f"c++ -std=c++20 -o x -c {file}"}
        for file in (good, unity)
    ]
    check_clang.COMMANDS.write_text(json.dumps(entries))
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    assert check_clang.main() == 1
    printed = capsys.readouterr().out
    assert "bad.cpp:2" in printed and "good.cpp" not in printed
    bad.unlink()
    assert check_clang.main() == 0


def test_commits_choose_every_dtype_on_ptx_beside_every_other_choice(monkeypatch):
    chosen = set()
    for commit in range(3 * 2 * 4 * 4):
        monkeypatch.setattr(suite, "commit", lambda commit=commit: commit)
        chosen.add((suite.one_of_those_that_take_long()[-1][0], suite.one_dtype()))
    # Sanitizers, mutants, four builds, kernels of two kinds: each with each dtype.
    assert len(chosen) == (1 + 1 + 4 + 2) * 4


def test_suite_counts_by_junit_and_never_hides_a_broken_step(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "JUNIT", tmp_path)
    assert suite.count("plain", 0) == (1, [])
    assert suite.count("plain", 2) == (0, [("plain", ["exit status 2"])])
    assert suite.count("plain", suite.SKIPPED) == (0, [])
    broken = suite.run("plain", ["sh", "-c", "seq 99; echo spills; exit 2"])
    assert broken.failed == [("plain", [*map(str, range(89, 100)), "spills", "exit status 2"])]
    (tmp_path / "runner.xml").write_text(JUNIT.format(""))
    assert suite.count("runner", 0) == (1, [])
    assert suite.count("runner", 1) == (1, [("runner", ["exit status 1"])])
    (tmp_path / "runner.xml").write_text(JUNIT.format(BAD))
    assert suite.count("runner", 1) == (
        1,
        [("runner: bad", ["said by pytest"]), ("runner: worse", ["said by ctest"])],
    )


def test_suite_stops_a_step_with_all_its_processes_when_the_time_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "JUNIT", tmp_path)
    monkeypatch.setenv("ISOBIT_END_BY", str(time.time() + 0.5))
    # The pipe ends when the last process that holds it does.
    late = suite.run("late", ["sh", "-c", "echo begun; sleep 60 & sleep 60"], collected=True)
    assert (late.status, late.passed, late.failed) == (suite.STOPPED, 0, [])
    assert late.seconds < 30
    assert suite.run("later", ["false"]).status == suite.LEFT_OUT

    monkeypatch.setitem(suite.SUITES, "test", [("everyday", ["true"])])
    monkeypatch.setattr("sys.argv", ["suite.py", "test"])
    assert suite.main() == 1
    monkeypatch.setenv("ISOBIT_END_BY", str(time.time() + 600))
    assert suite.main() == 0


def test_suite_counts_the_tests_of_programs_and_programs_that_crashed(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    monkeypatch.setattr(suite, "JUNIT", tmp_path)
    gtest = tmp_path / "build" / "runner" / "gtest"
    gtest.mkdir(parents=True)
    fail = '<testcase name="{}"><failure message=""/><system-out>{}</system-out></testcase>'
    parts = '<testcase name="part.0"/>' + fail.format("part.1", "") + fail.format("part.2", "RUN Q")
    parts += fail.format("part.3", "leaks")
    (tmp_path / "runner.xml").write_text(f"<testsuite>{parts}</testsuite>")
    good = '<testcase name="good" classname="Of" status="run" result="completed" time="2.5"/>'
    off = '<testcase name="off" classname="Of" status="notrun" result="suppressed"/>'
    bad = '<testcase name="bad" classname="Of"><failure message="x">x.cpp:1</failure></testcase>'
    for part, tests in enumerate((good + good + off, good + bad, None, good)):
        if tests is not None:
            (gtest / f"part.{part}.xml").write_text(f"<testsuites>{tests}</testsuites>")
    failed = [("runner: Of.bad", ["x.cpp:1"]), ("runner: part.2", ["RUN Q"])]
    assert suite.count("runner", 8) == (4, [*failed, ("runner: part.3", ["leaks"])])
    assert sum(float(test.get("time", 0)) for test in suite.cases("runner")) == 10
