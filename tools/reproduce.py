# SPDX-License-Identifier: Apache-2.0
"""Runs examples/reproducible.py on every instruction set of this machine, with 1 and 2 threads,
eager and compiled, and a few steps of it, recorded, on ARM under QEMU and on the emulated GPU;
prints one table of hashes, which must be the same."""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "reproducible.py"
RUNS = ("gpt", "cnn", "mlp")
# What ATen's kernels, of which those runs have few, are called where Isobit's are called so.
ATEN = {"scalar": "default", "avx2": "avx2", "avx512": "avx512", "neon": "default"}
SHOWN = 12  # digits of a hash
ARM = ROOT / "build" / "aarch64" / "isobit"
QEMU = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")


class Row(NamedTuple):
    """Of one configuration."""

    name: str
    hashes: dict  # {run: hash}
    bad: tuple = ()  # runs that the configuration itself found to differ


def lab():
    return Path(os.environ.get("ISOBIT_LIBRARIES", ROOT / "build" / "release")) / "isobit"


def isas():
    """Of this machine, the narrowest first."""
    run = subprocess.run([lab(), "info", "--json"], check=True, capture_output=True, text=True)
    widest = json.loads(run.stdout.splitlines()[0])["isa"]
    if widest == "neon":
        return ["scalar", "neon"]
    every = ["scalar", "avx2", "avx512"]
    return every[: every.index(widest) + 1]


def output(command, environment=None, passed=(0,)):
    """What a command prints, as objects; its failure is ours."""
    run = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    if run.returncode not in passed:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{run.stderr}")
    return [json.loads(line) for line in run.stdout.splitlines()]


def results(isa, threads, compiled, steps, runs, cache):
    """{run: (hash, what remained of PyTorch's)}. cache: of compiled code, which is of one kind of
    ATen's kernels."""
    command = [sys.executable, EXAMPLE, *runs, "--json", "--steps", str(steps)]
    command += ["--threads", str(threads), "--isa", isa, *(["--compile"] if compiled else [])]
    environment = os.environ | {
        "ATEN_CPU_CAPABILITY": ATEN[isa],
        "TORCHINDUCTOR_CACHE_DIR": str(cache / ATEN[isa]),
    }
    lines = output(command, environment)
    return {line["run"]: (line["hash"], line["remaining"]) for line in lines}


def record(runs, steps, folder):
    """Files of all that a few steps compute."""
    command = [sys.executable, EXAMPLE, *runs, "--json", "--steps", str(steps)]
    output([*command, "--threads", "1", "--record", folder])
    return {run: folder / f"{run}.bin" for run in runs}


def replayed(name, files, program, *more):
    """(row, what could not be computed). The hashes are of all results of all calls."""
    hashes, bad, lacking = {}, [], []
    for run, file in files.items():
        (line,) = output([*program, "replay", file, "--json", *more], passed=(0, 1))
        hashes[run] = line["hash"]
        if line["different"]:
            bad.append(run)
            lacking += line["complaints"]
        if line["unavailable"]:
            calls = line["calls"] + line["unavailable"]
            lacking.append(f"{run}: {line['unavailable']} of {calls} calls are unavailable")
    return Row(name, hashes, tuple(bad)), [f"{name}: {each}" for each in lacking]


def built_for_arm():
    """Why there is no program for ARM; empty where there is one, which this builds."""
    if platform.machine() == "aarch64":
        return "this machine is one"
    for tool in ("aarch64-linux-gnu-g++", QEMU[0]):
        if shutil.which(tool) is None:
            return f"{tool} is not installed; `tools/bootstrap test-full` brings it"
    for step in (["--preset"], ["--build", "--target", "isobit_command", "--preset"]):
        run = subprocess.run(["cmake", *step, "aarch64"], capture_output=True, text=True, cwd=ROOT)
        if run.returncode:
            sys.exit(f"the program for ARM does not build:\n{run.stdout[-3000:]}{run.stderr}")
    return ""


def no_emulator():
    """Why there is none; empty where there is one."""
    command = [lab(), "list", "elementwise", "--device", "emu", "--json"]
    (listed,) = output(command)
    return "" if listed["variants"] else "this build has no emulator"


# {way: (name, why it is missing, what replays)}
WAYS = {
    "qemu": ("neon, under QEMU", built_for_arm, lambda: [*QEMU, ARM], ("--threads", "1")),
    "emu": ("GPU, emulated", no_emulator, lambda: [lab()], ("--device", "emu")),
}


def elsewhere(chosen, runs, steps, folder):
    """(rows, what is to be said of them)"""
    show("recording")
    files = record(runs, steps, folder)
    row, said = replayed("repeated here", files, [lab()], "--threads", "1")
    rows = [row]
    for way in chosen:
        name, missing, program, flags = WAYS[way]
        show(name)
        if why := missing():
            said.append(f"{name}: left out, {why}")
            continue
        row, more = replayed(name, files, program(), *flags)
        rows.append(row)
        said += more
    return rows, said


def differing(rows, runs):
    """The runs of which not all rows have one hash."""
    return [
        run
        for run in runs
        if len({row.hashes[run] for row in rows}) > 1 or any(run in row.bad for row in rows)
    ]


def table(title, rows, runs):
    """Lines; a hash that differs from the first of its run is marked."""
    first = rows[0]
    yield (f"{title:28}" + "".join(f"{name:{SHOWN + 3}}" for name in runs)).rstrip()
    for row in rows:
        marks = (
            "*" if row.hashes[run] != first.hashes[run] or run in row.bad else " " for run in runs
        )
        cells = (row.hashes[run][:SHOWN] + mark for run, mark in zip(runs, marks, strict=True))
        yield (f"{row.name:28}" + "  ".join(cells)).rstrip()


def named(isa, threads, compiled):
    return f"{isa} {threads} thread{'s' * (threads > 1)} {'compiled' if compiled else 'eager'}"


def show(words):
    """In the place of what was shown before."""
    if sys.stderr.isatty():
        print(f"\r{words:60}\r", end="", file=sys.stderr, flush=True)


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", default="1,2", help="numbers of threads, with commas")
    parser.add_argument("--isa", help="instruction sets, with commas; all of the machine if none")
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    parser.add_argument("--runs", default=",".join(RUNS), help="with commas")
    parser.add_argument(
        "--elsewhere",
        default=",".join(WAYS),
        help="qemu: ARM under QEMU; emu: the emulated GPU; with commas, or none",
    )
    parser.add_argument("--recorded-steps", type=int, default=3, help="that run elsewhere")
    given = parser.parse_args(arguments)
    given.elsewhere = [] if given.elsewhere == "none" else given.elsewhere.split(",")
    for name in given.elsewhere:
        if name not in WAYS:
            parser.error(f"--elsewhere has no {name}; known: {', '.join(WAYS)}")
    return given


def main(arguments=None):
    given = options_of(arguments)
    runs = given.runs.split(",")
    chosen = given.isa.split(",") if given.isa else isas()
    threads = [int(count) for count in given.threads.split(",")]
    rows, remaining, said = [], {}, []
    ways = list(product((False,) if given.eager else (False, True), chosen, threads))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for compiled, isa, count in ways:
            name = named(isa, count, compiled)
            show(f"{len(rows)}/{len(ways)} {name}")
            found = results(isa, count, compiled, given.steps, runs, folder)
            remaining = remaining or {run: left for run, (_, left) in found.items()}
            rows.append(Row(name, {run: hash for run, (hash, _) in found.items()}))
        others = []
        if given.elsewhere:
            others, said = elsewhere(given.elsewhere, runs, given.recorded_steps, folder)
    show("")
    print("\n".join(table("configuration", rows, runs)))
    if others:
        print(f"\nall results of all calls in {given.recorded_steps} steps")
        print("\n".join(table("", others, runs)))
    for line in said:
        print(line)
    different = [run for run in runs if run in differing(rows, runs) + differing(others, runs)]
    for run in different:
        print(f"\n{run}: the bits differ (*). PyTorch computes of it")
        print("\n".join(f"  {each}" for each in remaining[run]))
    if not different:
        print("\nall configurations end with the same bits")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
