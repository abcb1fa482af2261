# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of `make test`, test-full or coverage to the end, failures or not, and counts."""

import argparse
import importlib.util
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
JUNIT = ROOT / "build" / "junit"
LINES_SHOWN = 12  # of what a failed test printed
LEFT_OUT = 75  # the time was over before it began
STOPPED = 76  # the time was over before it ended
SKIPPED = 77  # the exit status of a step that lacks a tool which a user may lack
PYTHON = sys.executable


class Beside:
    """Lists of steps, one list beside the other, for steps that keep no more than one core busy."""

    def __init__(self, *lists):
        self.lists = lists


def junit(name):
    return ["--junitxml", str(JUNIT / f"{name}.xml")]


def ctest(preset):
    return ["ctest", "--preset", preset, "--output-junit", str(JUNIT / f"{preset}.xml")]


def preset_steps(preset):
    return [
        (f"configure {preset}", ["cmake", "--preset", preset]),
        (f"build {preset}", ["cmake", "--build", "--preset", preset]),
        (preset, ctest(preset)),
    ]


PYTEST_ALONE = [PYTHON, "-m", "pytest", "-q"]
# In the order of conftest.py, not by how many tests a file has.
PYTEST_BY_FILES = [*PYTEST_ALONE, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
# What the files' processes executed is summed up over all.
PYTEST = [*PYTEST_BY_FILES, "--cov", "--cov-report="]


def adapters_tests(preset):
    """What of PyTorch's tests is not about its compiler, its processes or its models."""
    topics = ["adapters", "autograd", "fast", "functional", "interception", "memory", "modules"]
    return [
        "env",
        f"ISOBIT_LIBRARIES={ROOT / 'build' / preset}",
        *PYTEST_BY_FILES,
        *junit("adapters for PyTorch"),
        *(f"tests/python/test_torch_{topic}.py" for topic in topics),
    ]


def on_executor(device, command):
    """Skipped where nvcc is missing, without which there is nothing to execute."""
    return ["sh", "-c", f"[ -e build/release/libisobit_{device}.so ] || exit {SKIPPED}; {command}"]


def quick_grids_on(device, flags=""):
    command = f"build/release/isobit verify --all --variant all --device {device} {flags}"
    return on_executor(device, command.strip())


GPU_TESTS, GPU_PROGRAM = "kernels as nvcc made them", "isobit_gpu_tests"
GPU_TESTS_ON_PTX = on_executor(
    "ptx",
    "ISOBIT_CUDA_LIBRARY=build/release/libisobit_ptx.so ISOBIT_ONE_IN=19"
    f" build/release/{GPU_PROGRAM} '--gtest_output=xml:{JUNIT}/{GPU_TESTS}.xml'",
)

LOOKED_AT = "kernels for an AMD GPU, looked at"
HIP_TESTS = [*PYTEST_ALONE, "tests/python/test_hip.py", *junit(LOOKED_AT)]


def commit():
    """A number that changes with it."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return int(head.stdout.strip()[-4:] or "0", 16)


def one_dtype():
    """Of those that nearly all kernels have, as the commit decides: machine code was made of the
    PTX, so little is wrong in that alone."""
    dtypes = ["f32", "bf16", "f16", "f64"]
    return dtypes[commit() // 24 % len(dtypes)]


def sanitizers():
    return preset_steps("asan")


def planted_defects():
    return [("mutants", [PYTHON, "tools/mutants.py"])]


def another_build():
    """One of four."""
    builds = ["tsan", "clang", "aarch64", "asan-emulator"]
    return preset_steps(builds[commit() // 6 % len(builds)])


def kernels_for_another_gpu():
    """Of NVIDIA's or of AMD's: they differ in little."""
    if commit() // 6 % 2 == 0:
        return [("kernels for another GPU", [PYTHON, "tools/kernels.py", "--others"])]
    return [
        ("tools for AMD's GPUs", ["sh", "-c", f"tools/bootstrap hip || exit {SKIPPED}"]),
        ("kernels for an AMD GPU", [PYTHON, "tools/kernels_hip.py", "--arch", "one"]),
        (LOOKED_AT, HIP_TESTS),
    ]


def one_of_those_that_take_long():
    """As the commit decides: all of them would take hours. Sanitizers in every other commit."""
    others = [planted_defects, another_build, kernels_for_another_gpu]
    return (sanitizers if commit() % 2 else others[commit() // 2 % len(others)])()


def python_coverage():
    """Without PyTorch and Triton much of the Python is not executed."""
    if not all(importlib.util.find_spec(name) for name in ("torch", "triton")):
        return []
    return [("coverage of Python", [PYTHON, "-m", "coverage", "report"])]


SUITES = {
    "test": [
        ("release", ctest("release")),
        ("kernels for GPUs", [PYTHON, "tools/kernels.py"]),
        ("tests for a GPU", ["cmake", "--build", "--preset", "release", "--target", GPU_PROGRAM]),
        Beside(
            [("phases for a GPU, without one", [PYTHON, "tools/gpu.py", "--dry"])],
            [(GPU_TESTS, GPU_TESTS_ON_PTX)],
        ),
        ("python", [*PYTEST, *junit("python")]),
        *python_coverage(),
        ("layer rules hold their own test", [PYTHON, "tools/check_layers.py", "--self-test"]),
        ("layer rules", [PYTHON, "tools/check_layers.py"]),
        ("paths", [PYTHON, "tools/check_paths.py"]),
    ],
    "test-full": [
        ("wheel", ["tools/wheel", "90a"]),
        Beside(
            [
                ("quick grids on machine code", quick_grids_on("sass")),
                (
                    f"quick grids on PTX in {one_dtype()}",
                    quick_grids_on("ptx", f"--grid quick --dtype {one_dtype()}"),
                ),
                ("format and lint", ["make", "--no-print-directory", "check"]),
                ("installed", [*PYTEST_ALONE, "tests/wheel", *junit("installed")]),
                ("documentation", ["tools/docs"]),
                ("full", [*ctest("full"), "-j1"]),
            ],
            [("full python", [*PYTEST_ALONE, "-m", "full", *junit("full python")])],
        ),
        *one_of_those_that_take_long(),
    ],
    "coverage": [
        *preset_steps("coverage"),
        ("adapters for PyTorch", adapters_tests("coverage")),
        ("summary", [PYTHON, "-m", "gcovr", "--config", "tools/gcovr.cfg"]),
    ],
}


class Result(NamedTuple):
    name: str
    status: int
    seconds: float
    passed: int
    failed: list


def end_by():
    """Seconds since 1970 after which no step runs; never, where the environment says nothing."""
    return float(os.environ.get("ISOBIT_END_BY", "inf"))


def execute(command, shown):
    """Its exit status and the lines it printed, shown at once or not; all its processes end in
    time."""
    limited = end_by() < math.inf
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        start_new_session=limited,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines = []

    def read():
        for line in process.stdout:
            lines.append(line)
            if shown:
                print(line, end="", flush=True)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        status = process.wait(timeout=end_by() - time.time() if limited else None)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        status = STOPPED
    reader.join(timeout=10)  # a process that outlives the step may keep the pipe open
    return status, lines


def run(name, command, collected=False):
    """Runs a step; what it prints is shown at once or, collected, when it has ended."""
    for old in [JUNIT / f"{name}.xml", *(ROOT / "build" / name / "gtest").glob("*.xml")]:
        old.unlink(missing_ok=True)
    begin = time.monotonic()
    if end_by() < time.time():
        return Result(name, LEFT_OUT, 0, 0, [])
    if not collected:
        print(f"\n== {name}", flush=True)
    status, lines = execute(command, not collected)
    if collected:
        print(f"\n== {name}\n{''.join(lines)}", flush=True)
    seconds = time.monotonic() - begin
    return Result(name, status, seconds, *count(name, status, lines))


def failure_of(test):
    bad = test.find("failure")
    return bad if bad is not None else test.find("error")


def cases(name):
    """The test cases of a step by its JUnit file.

    One of CTest's may be a part of a program, whose own XML has the cases in its place. A part that
    failed though none of them did, as one that crashed and so wrote none, is a case itself.
    """
    junit = JUNIT / f"{name}.xml"
    for case in ElementTree.parse(junit).iter("testcase") if junit.exists() else ():
        part = ROOT / "build" / name / "gtest" / f"{case.get('name')}.xml"
        own = list(ElementTree.parse(part).iter("testcase")) if part.exists() else []
        for test in own:
            test.set("name", f"{test.get('classname')}.{test.get('name')}")
        yield from own
        failed = [test for test in own if failure_of(test) is not None]
        if not own or (failure_of(case) is not None and not failed):
            yield case


def count(name, status, lines=()):
    """How many passed, and what failed with the end of what it printed.

    A test runner counts by its JUnit file; another step, or a broken runner, counts as one.
    """
    passed, failed = 0, []
    if (JUNIT / f"{name}.xml").exists():
        for test in cases(name):
            if (bad := failure_of(test)) is not None:
                printed = "\n".join(filter(None, [bad.text, test.findtext("system-out")]))
                failed.append((f"{name}: {test.get('name')}", end_of(printed.splitlines())))
            elif test.find("skipped") is None and test.get("status") not in ("disabled", "notrun"):
                passed += 1
    elif status == 0:
        passed = 1
    if status not in (0, SKIPPED, STOPPED) and not failed:
        failed = [(name, [*end_of(lines), f"exit status {status}"])]
    return passed, failed


def end_of(lines):
    return [line.rstrip("\n") for line in lines[-LINES_SHOWN:]]


def seconds_by_operator(steps):
    """Of the tests whose names hold an operator's, so that a new one can be held to its budget."""
    folders = (ROOT / "src" / "isobit" / "ops").iterdir()
    seconds = dict.fromkeys(sorted(each.name for each in folders if each.is_dir()), 0.0)
    for name in steps:
        for test in cases(name):
            words = re.sub(r"[^a-z]", "", f"{test.get('classname')} {test.get('name')}".lower())
            for operator in seconds:
                if operator in words:
                    seconds[operator] += float(test.get("time", 0))
    return ", ".join(f"{operator} {spent:.0f}" for operator, spent in seconds.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--started", type=float, default=time.time(), help="seconds since 1970")
    args = parser.parse_args()

    JUNIT.mkdir(parents=True, exist_ok=True)
    results = []
    for each in SUITES[args.suite]:
        if isinstance(each, Beside):
            with ThreadPoolExecutor(len(each.lists)) as pool:
                for done in pool.map(
                    lambda steps: [run(*step, True) for step in steps], each.lists
                ):
                    results += done
        else:
            results.append(run(*each))

    passed = sum(result.passed for result in results)
    failed = [failure for result in results for failure in result.failed]
    skipped = [result.name for result in results if result.status == SKIPPED]
    stopped = [result.name for result in results if result.status == STOPPED]
    left_out = [result.name for result in results if result.status == LEFT_OUT]
    seconds = [f"{r.name} {r.seconds:.0f}" for r in results if r.status != LEFT_OUT]
    print(f"\nseconds: {', '.join(seconds)}")
    print(f"seconds of tests by operator: {seconds_by_operator(result.name for result in results)}")
    for name, lines in failed:
        print(f"\nfailed: {name}", *lines, sep="\n  ")
    if skipped:
        print("skipped, because a tool is missing:", ", ".join(skipped))
    if stopped:
        print("stopped, because the time was over:", ", ".join(stopped))
    if left_out:
        print("left out, because the time was over:", ", ".join(left_out))
    # Of the everyday tests none may be missing.
    missing = len(stopped + left_out) if args.suite == "test" else 0
    print(f"{passed} passed, {len(failed) + missing} failed")
    print(f"make {args.suite} took {time.time() - args.started:.0f} s")
    return 1 if failed or missing else 0


if __name__ == "__main__":
    sys.exit(main())
