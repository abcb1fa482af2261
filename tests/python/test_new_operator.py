# SPDX-License-Identifier: Apache-2.0
"""tools/new_operator.py makes an operator that builds, is right and keeps every rule, or nothing.

All of it happens in copies of the tree, which pytest throws away. What is built there takes the
objects of the release build wherever a source is the same.
"""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import check_paths
import faces
import new_operator
import pytest

ROOT = new_operator.ROOT
NAME, ORIGINAL = "softsign", "elementwise"
PROGRAMS = ("isobit_tests", "isobit_simt_tests", "isobit_race_tests")
COMMIT = ("-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-qam", "as it is")

TAKE_OR_COMPILE = """#!/bin/sh
for word; do
  case $before in -o) object=$word ;; -c) source=$word ;; -MF) depends=$word ;; esac
  before=$word
done
original={root}/${{source#{tree}/}}
built={root}/build/release/$object
# One source is told where its tree lies; others include what the new operator changed.
if cmp -s "$source" "$original" && [ "$built" -nt "$original" ] &&
  ! grep -qE 'ISOBIT_PYTHON_PATH|{changed}' "$source"
then
  cp "$built" "$object" && echo "$object: $source" >"$depends"
else
  exec "$@"
fi
"""


def run(folder, *command, **kwargs):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, **kwargs)


def git(folder, *words):
    done = run(folder, "git", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def copy_of_the_tree(folder):
    for path in check_paths.files(ROOT):
        if (ROOT / path).exists():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, folder / path)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    git(folder, "init", "-q")
    git(folder, "add", "--all")
    git(folder, *COMMIT)
    return folder


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    return copy_of_the_tree(tmp_path_factory.mktemp("copied"))


def clean(tree):
    git(tree, "reset", "-q", "--hard")
    git(tree, "clean", "-qfd")


@pytest.fixture
def tree(copied, monkeypatch):
    """A copy of the tree in which the tool is run."""
    clean(copied)
    monkeypatch.setattr(new_operator, "ROOT", copied)
    return copied


def new(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["new_operator.py", *arguments])
    return new_operator.main()


def refused(monkeypatch, capsys, *arguments):
    """What the tool says when it does nothing."""
    before = git(new_operator.ROOT, "status", "--porcelain")
    assert new(monkeypatch, *arguments) == 1
    assert git(new_operator.ROOT, "status", "--porcelain") == before
    said, complaint = capsys.readouterr()
    assert not said
    return complaint


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["Softsign"], "'Softsign' is no name of an operator; take lower-case letters"),
        (["soft-sign"], "a letter first, as in soft_sign"),
        (["_softsign"], "a letter first, as in soft_sign"),
        (["2softsign"], "a letter first, as in soft_sign"),
        (["union"], "union is a keyword of C++ or Python; use another name, such as union_op"),
        (["lambda"], "lambda is a keyword of C++ or Python; use another name, such as lambda_op"),
        ([ORIGINAL], "elementwise already exists; remove it, or use another name"),
        (["quad"], " already uses the name quad; use another"),
        ([NAME, "--from", "gelu"], "no such operator; known: activation, adam, attention"),
    ],
)
def test_a_name_that_cannot_be_is_refused_with_what_to_do(
    tree, monkeypatch, capsys, arguments, reason
):
    assert reason in refused(monkeypatch, capsys, *arguments)


def test_a_folder_that_is_there_is_left_alone(tree, monkeypatch, capsys):
    (tree / new_operator.OPS / NAME).mkdir()
    assert "softsign already exists" in refused(monkeypatch, capsys, NAME)
    assert (tree / new_operator.OPS / NAME).is_dir()


@pytest.mark.parametrize(
    "path", ["src/isobit/ops/catalog.cpp", "src/isobit/ops/elementwise/cpu.cpp"]
)
def test_what_is_not_committed_is_not_mixed_with_a_copy(tree, monkeypatch, capsys, path):
    with (tree / path).open("a") as file:
        file.write("// more\n")
    said = refused(monkeypatch, capsys, NAME)
    assert f"the new operator can be undone alone:\n M {path}" in said


def test_a_list_without_the_operator_is_an_error(tree):
    (tree / new_operator.OPS / "catalog.cpp").write_text("{&else::operation(),};")
    with pytest.raises(new_operator.Refused, match=r"catalog\.cpp does not list elementwise"):
        new_operator.made(NAME, ORIGINAL)


def test_the_last_element_of_a_list_needs_its_comma(tree):
    (tree / new_operator.OPS / "catalog.cpp").write_text("{{&elementwise::operation()}, 1};")
    with pytest.raises(
        new_operator.Refused, match=r"no comma follows &elementwise::operation\(\);"
    ):
        new_operator.made(NAME, ORIGINAL)


def test_an_operator_without_laws_gives_a_copy_without_laws(tree):
    path = tree / new_operator.LAWS
    path.write_text(re.sub(r'\{"elementwise", kLawsOfSums\},\s*', "", path.read_text()))
    assert new_operator.listed(new_operator.LAWS, ORIGINAL, NAME) == path.read_text()


@pytest.mark.parametrize("last", [3, 8, 17])
def test_a_failure_takes_back_what_was_written(tree, monkeypatch, last):
    texts = new_operator.made(NAME, ORIGINAL)
    written = []
    write_text = new_operator.Path.write_text

    def failing(path, text):
        written.append(path)
        if len(written) == last:
            raise KeyboardInterrupt
        return write_text(path, text)

    with monkeypatch.context() as context:
        context.setattr(new_operator.Path, "write_text", failing)
        with pytest.raises(KeyboardInterrupt):
            new_operator.write(texts, new_operator.OPS / NAME)
    assert len(written) == last + len(new_operator.LISTS)
    assert git(tree, "status", "--porcelain") == ""


def test_missing_formatters_are_named(tree, monkeypatch, capsys):
    (tree / ".venv").unlink()
    try:
        complaint = refused(monkeypatch, capsys, NAME)
    finally:
        (tree / ".venv").symlink_to(ROOT / ".venv")
    assert "clang-format not found; run `make venv`" in complaint


def named(files, *suffixes):
    return [file for file in files if file.endswith(suffixes)]


@pytest.mark.parametrize(
    "original",
    ["elementwise", "layernorm", pytest.param("rmsnorm", marks=pytest.mark.full), "transpose"],
)
def test_a_copy_keeps_every_rule_of_the_tree(tree, monkeypatch, original):
    assert new(monkeypatch, NAME, "--from", original) == 0
    changed = git(tree, "status", "--porcelain", "-uall").splitlines()
    files = [line[3:] for line in changed]
    assert {line[:2] for line in changed} == {" M", "??"}
    assert len(files) == len(new_operator.LISTS) + len(
        git(tree, "ls-files", new_operator.OPS / original).splitlines()
    )

    def keeps(*command):
        done = run(tree, *command)
        assert done.returncode == 0, done.stdout + done.stderr

    tools = ROOT / ".venv" / "bin"
    keeps(tools / "clang-format", "--dry-run", "-Werror", *named(files, ".h", ".cpp", ".cu"))
    if python := named(files, ".py"):
        keeps(tools / "ruff", "check", "--no-cache", *python)
        keeps(tools / "ruff", "format", "--check", "--no-cache", *python)
    keeps(sys.executable, "tools/check_layers.py")
    assert check_paths.check(tree, map(Path, files)) == []

    folder = tree / new_operator.OPS / NAME
    named_so = rf"{original}(?![dr])"  # transposed
    same = [path for path in folder.iterdir() if re.search(named_so, path.read_text(), re.I)]
    assert [path.name for path in same] == ["README.md"]  # which says what it is a copy of
    assert "bench/results" not in same[0].read_text()

    first = {file: (tree / file).read_text() for file in files}
    clean(tree)
    assert new(monkeypatch, NAME, "--from", original) == 0
    assert {file: (tree / file).read_text() for file in files} == first


def test_the_walk_shows_what_the_tool_says(tree, monkeypatch, capsys):
    assert new(monkeypatch, NAME) == 0
    walk = (ROOT / "CONTRIBUTING.md").read_text()
    shown = re.search(r"^\$ tools/new_operator.py softsign\n(.*?)^```", walk, re.M | re.S)
    assert shown[1] == capsys.readouterr().out


def files_of_the_walk():
    """What CONTRIBUTING.md counts, by who names an operator there."""
    walk = (ROOT / "CONTRIBUTING.md").read_text()
    table = re.search(r"^\| named in \| by \|\n.*?\n((?:\|.*\n)+)", walk, re.M)[1]
    rows = [line.strip("|\n").split(" | ") for line in table.splitlines()]
    return {by.strip(): re.findall(r"`(\S+)`", files) for files, by in rows}


# An operator has rows in some of several such files, or none.
DIVIDED = {"tests/golden_bits.h", "tests/laws.h", "tests/calls_world.h"}


def test_the_walk_counts_what_names_every_operator():
    *everybody, numpy, torch = files_of_the_walk().items()
    counted = dict(everybody)
    tools = [file for by, files in everybody if by.startswith("`tools/") for file in files]
    assert counted[next(iter(counted))] == sorted(map(str, new_operator.LISTS))
    assert set(counted["`tools/faces.py`"]) == set(faces.FACES)
    walk = set().union(*counted.values())
    assert len(walk) == sum(map(len, counted.values())) == 20 and len(tools) == 10
    assert len(numpy[1] + torch[1]) == 10
    named = set()
    operators = [re.compile(rf"(?<![a-z]){name}(?![a-z])") for name in new_operator.operators()]
    for path in check_paths.files(ROOT):
        figures = path.match("bench/results/*/*") or path.match("bench/counters/*")
        if path.parent.parent == new_operator.OPS or figures:
            continue
        try:
            text = (ROOT / path).read_text().lower()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        if all(operator.search(text) for operator in operators):
            named.add(str(path))
    assert named == walk - DIVIDED
    for path in [*walk, *numpy[1], *torch[1]]:
        assert "transpos" in (ROOT / path).read_text(), path


def done(tree, *command):
    result = run(tree, *command)
    assert result.returncode == 0, result.stdout + result.stderr


def build(tree, original):
    """The copy, and after it the faces that follow from its description."""
    done(tree, tree / "tools" / "new_operator.py", NAME, "--from", original)
    changed = "|".join(Path(name).name for name in git(tree, "diff", "--name-only").split())
    assert "golden_bits.h" in changed
    compiler = tree / "take_or_compile"
    compiler.write_text(TAKE_OR_COMPILE.format(root=ROOT, tree=tree, changed=changed))
    compiler.chmod(0o700)
    launcher = f"-DCMAKE_CXX_COMPILER_LAUNCHER={compiler}"
    targets = ("isobit_command", "libisobit.so", *PROGRAMS)
    done(tree, "cmake", "--preset", "release", launcher)
    done(tree, "cmake", "--build", "--preset", "release", "--target", "libisobit.so")
    faces = (sys.executable, "tools/faces.py")
    assert run(tree, *faces, "--check").returncode == 1
    done(tree, *faces)
    done(tree, "cmake", "--build", "--preset", "release", "--target", *targets)
    done(tree, *faces, "--check")


@pytest.fixture(scope="module", params=["elementwise", "transpose"])
def original(request):
    return request.param


@pytest.fixture(scope="module")
def built(tmp_path_factory, original):
    """A copy of the tree with the new operator and its build, half a gigabyte."""
    tree = copy_of_the_tree(tmp_path_factory.mktemp("built"))
    try:
        build(tree, original)
        yield tree
    finally:
        shutil.rmtree(tree)


def names_of(program, op):
    """The names of a program's tests of an operator, without its own."""
    listed = run(None, program, "--gtest_list_tests", f"--gtest_filter=*{op}*").stdout
    return [line.partition("#")[0].replace(op, "") for line in listed.splitlines()]


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_generic_suites_take_the_copy_up_and_find_it_right(built, original, program):
    path = built / "build" / "release" / program
    names = names_of(path, NAME)
    assert len(names) > 10
    assert names == names_of(path, original)
    done(built, path, f"--gtest_filter=*{NAME}*:GoldenList.*")


def lab(built, *words, status=0):
    said = run(built, built / "build" / "release" / "isobit", *words)
    assert said.returncode == status, said.stdout + said.stderr
    return said.stdout


def lines(built, *words):
    return [json.loads(line) for line in lab(built, *words, "--json").splitlines()]


@pytest.mark.full
def test_the_lab_knows_the_copy(built, original):
    (ours,), (theirs,) = (lines(built, "list", op) for op in (NAME, original))
    assert ours | {"op": original} == theirs
    assert {"state": "ok", "what": f"{NAME} fwd"} in lines(built, "doctor")


@pytest.mark.full
def test_the_lab_verifies_and_times_the_copy(built):
    verified = lines(built, "verify", NAME, "--device", "cpu,emu", "--grid", "quick")
    assert {line["op"] for line in verified} == {NAME}
    timed = lines(built, "bench", NAME, "--quick", "--rows", "8", "--cols", "1000")
    assert timed and all(line["op"] == NAME and line["median_us"] > 0 for line in timed)


@pytest.mark.full
def test_every_way_to_compute_the_copy_gives_one_hash(built):
    ways = {line["configuration"]: line for line in lines(built, "parity", NAME)}
    given = {json.dumps(line["outputs"]) for line in ways.values() if "outputs" in line}
    assert len(given) == 1
    assert "outputs" in ways["C"]


@pytest.mark.full
def test_tools_name_the_copy_where_the_walk_says_so(built):
    tools = [files for by, files in files_of_the_walk().items() if by.startswith("`tools/")]
    changed = set(git(built, "diff", "--name-only").split())
    assert changed == set().union(*tools) - {"abi/libisobit.so.0.2.xml"}  # recorded at the end


@pytest.mark.full
def test_c_has_a_function_of_the_copy(built):
    header = (built / "include/isobit/operators.h").read_text()
    names = re.findall(rf"ISOBIT_API isobit_status (isobit_{NAME}\w*)\(", header)
    library = ctypes.CDLL(str(built / "build" / "release" / "libisobit.so"))
    assert names and all(getattr(library, name) for name in names)


COMPARE = """
import sys
import numpy as np, torch
from isobit.ops.{name} import pytorch, triton

arrays = [torch.from_numpy(np.load(file)) for file in sys.argv[1:]]
*inputs, expected = arrays
names = dict(zip(("x", "residual"), inputs))
for variant in triton.VARIANTS.values():
    y = torch.zeros_like(expected)
    variant.run(**names, y=y)
    assert torch.equal(y, expected), variant.name
for function in (pytorch.reference, pytorch.standard):
    assert torch.equal(function(*inputs), expected), function
print(*triton.VARIANTS)
"""
# What is copied, a shape of x, calls as flags and inputs, and the variants in Triton.
CALLS = {
    "elementwise": (
        (3, 700),
        [(["--kind", "add"], ["x", "residual"]), (["--kind", "increment"], ["x"])],
        ["vec16", "unrolled4", "naive"],
    ),
    "transpose": ((2, 30, 70), [([], ["x"])], ["tiled", "naive"]),
}


@pytest.mark.full
def test_triton_and_pytorch_compute_the_copy(built, original, tmp_path):
    pytest.importorskip("triton")
    np = pytest.importorskip("numpy")
    shape, calls, variants = CALLS[original]
    random = np.random.default_rng(1)
    paths = {"PYTHONPATH": str(built / "python"), "TRITON_INTERPRET": "1"}
    for flags, inputs in calls:
        given = []
        for name in inputs:
            np.save(tmp_path / f"{name}.npy", random.standard_normal(shape, np.float32))
            given += ["--in", f"{name}={tmp_path / name}.npy"]
        lab(built, "run", NAME, *flags, *given, "--out", tmp_path)
        files = [tmp_path / f"{name}.npy" for name in (*inputs, "y")]
        program = COMPARE.format(name=NAME)
        said = run(built, sys.executable, "-c", program, *files, env=os.environ | paths)
        assert said.returncode == 0, said.stderr
        assert said.stdout.split() == variants
