# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of `make test`, test-full or coverage to the end, failures or not, and counts."""

import argparse
import importlib.util
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JUNIT = ROOT / "build" / "junit"
LINES_SHOWN = 20  # of what a failed test printed
SKIPPED = 77  # the exit status of a step that lacks a tool which a user may lack
PYTHON = sys.executable


def ctest(preset):
    return ["ctest", "--preset", preset, "--output-junit", str(JUNIT / f"{preset}.xml")]


def preset_steps(preset):
    return [
        (f"configure {preset}", ["cmake", "--preset", preset]),
        (f"build {preset}", ["cmake", "--build", "--preset", preset]),
        (preset, ctest(preset)),
    ]


PYTEST_ALONE = [PYTHON, "-m", "pytest", "-q"]
PYTEST_BY_FILES = [*PYTEST_ALONE, "-n", "2", "--dist", "loadfile"]
# What the files' processes executed is summed up over all.
PYTEST = [*PYTEST_BY_FILES, "--cov", "--cov-report="]


def adapters_tests(preset):
    """What of PyTorch's tests is not about its compiler, its processes or its models."""
    topics = ["adapters", "autograd", "fast", "functional", "interception", "memory", "modules"]
    return [
        "env",
        f"ISOBIT_LIBRARIES={ROOT / 'build' / preset}",
        *PYTEST_BY_FILES,
        "--junitxml",
        str(JUNIT / "adapters for PyTorch.xml"),
        *(f"tests/python/test_torch_{topic}.py" for topic in topics),
    ]


def on_executor(device, command):
    """Skipped where nvcc is missing, without which there is nothing to execute."""
    return ["sh", "-c", f"[ -e build/release/libisobit_{device}.so ] || exit {SKIPPED}; {command}"]


def quick_grids_on(device):
    command = f"build/release/isobit verify --all --variant all --device {device}"
    return on_executor(device, command)


GPU_TESTS = "kernels as nvcc made them"
GPU_TESTS_ON_PTX = on_executor(
    "ptx",
    "ISOBIT_CUDA_LIBRARY=build/release/libisobit_ptx.so ISOBIT_ONE_IN=19"
    f" build/release/isobit_gpu_tests '--gtest_output=xml:{JUNIT}/{GPU_TESTS}.xml'",
)

HIP_TESTS = [*PYTEST_ALONE, "tests/python/test_hip.py"]
HIP_TESTS += ["--junitxml", str(JUNIT / "kernels for AMD's GPUs, looked at.xml")]


def python_coverage():
    """Without PyTorch and Triton much of the Python is not executed."""
    if not all(importlib.util.find_spec(name) for name in ("torch", "triton")):
        return []
    return [("coverage of Python", [PYTHON, "-m", "coverage", "report"])]


SUITES = {
    "test": [
        ("release", ctest("release")),
        ("kernels for GPUs", [PYTHON, "tools/kernels.py"]),
        ("phases for a GPU, without one", [PYTHON, "tools/gpu.py", "--dry"]),
        (GPU_TESTS, GPU_TESTS_ON_PTX),
        ("python", [*PYTEST, "--junitxml", str(JUNIT / "python.xml")]),
        *python_coverage(),
        ("layer rules hold their own test", [PYTHON, "tools/check_layers.py", "--self-test"]),
        ("layer rules", [PYTHON, "tools/check_layers.py"]),
        ("paths", [PYTHON, "tools/check_paths.py"]),
    ],
    "test-full": [
        *preset_steps("asan"),
        *preset_steps("tsan"),
        *preset_steps("clang"),
        *preset_steps("aarch64"),
        ("full", ctest("full")),
        (
            "full python",
            [*PYTEST_ALONE, "-m", "full", "--junitxml", str(JUNIT / "full python.xml")],
        ),
        ("wheel", ["tools/wheel", "90a"]),
        ("installed", [*PYTEST_ALONE, "tests/wheel", "--junitxml", str(JUNIT / "installed.xml")]),
        ("documentation", ["tools/docs"]),
        ("quick grids on PTX", quick_grids_on("ptx")),
        ("quick grids on machine code", quick_grids_on("sass")),
        ("kernels for other GPUs", [PYTHON, "tools/kernels.py", "--others"]),
        ("kernels for AMD's GPUs", [PYTHON, "tools/kernels_hip.py", "--arch", "one"]),
        ("kernels for AMD's GPUs, looked at", HIP_TESTS),
        ("mutants", [PYTHON, "tools/mutants.py"]),
        ("format and lint", ["make", "--no-print-directory", "check"]),
    ],
    "coverage": [
        *preset_steps("coverage"),
        ("adapters for PyTorch", adapters_tests("coverage")),
        ("summary", [PYTHON, "-m", "gcovr", "--config", "tools/gcovr.cfg"]),
    ],
}


def count(name, status):
    """How many passed, and what failed with the end of what it printed.

    A test runner counts by its JUnit file; another step, or a broken runner, counts as one.
    """
    junit = JUNIT / f"{name}.xml"
    passed, failed = 0, []
    if junit.exists():
        for test in ElementTree.parse(junit).iter("testcase"):
            if (bad := test.find("failure")) is not None or (bad := test.find("error")) is not None:
                printed = "\n".join(filter(None, [bad.text, test.findtext("system-out")]))
                failed.append((f"{name}: {test.get('name')}", printed.splitlines()[-LINES_SHOWN:]))
            elif test.find("skipped") is None and test.get("status") != "disabled":
                passed += 1
    elif status == 0:
        passed = 1
    if status not in (0, SKIPPED) and not failed:
        failed = [(name, [f"exit status {status}"])]
    return passed, failed


def seconds_by_operator(steps):
    """Of the tests whose names hold an operator's, so that a new one can be held to its budget."""
    folders = (ROOT / "src" / "isobit" / "ops").iterdir()
    seconds = dict.fromkeys(sorted(each.name for each in folders if each.is_dir()), 0.0)
    for name in steps:
        junit = JUNIT / f"{name}.xml"
        for test in ElementTree.parse(junit).iter("testcase") if junit.exists() else ():
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

    passed = 0
    failed, skipped, seconds = [], [], []
    JUNIT.mkdir(parents=True, exist_ok=True)
    for name, command in SUITES[args.suite]:
        print(f"\n== {name}", flush=True)
        (JUNIT / f"{name}.xml").unlink(missing_ok=True)
        begin = time.monotonic()
        status = subprocess.run(command, cwd=ROOT).returncode
        seconds.append(f"{name} {time.monotonic() - begin:.0f}")
        good, bad = count(name, status)
        passed, failed = passed + good, failed + bad
        skipped += [name] * (status == SKIPPED)

    print(f"\nseconds: {', '.join(seconds)}")
    print(f"seconds of tests by operator: {seconds_by_operator(n for n, _ in SUITES[args.suite])}")
    for name, lines in failed:
        print(f"\nfailed: {name}", *lines, sep="\n  ")
    if skipped:
        print("skipped, because a tool is missing:", ", ".join(skipped))
    print(f"{passed} passed, {len(failed)} failed")
    print(f"make {args.suite} took {time.time() - args.started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
