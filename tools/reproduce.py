# SPDX-License-Identifier: Apache-2.0
"""Runs examples/reproducible.py on every instruction set of this machine, with 1 and 2 threads,
eager and compiled, and prints one table of the hashes of weights, which must be the same."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "reproducible.py"
RUNS = ("gpt", "cnn", "mlp")
# What ATen's kernels, of which those runs have few, are called where Isobit's are called so.
ATEN = {"scalar": "default", "avx2": "avx2", "avx512": "avx512", "neon": "default"}
SHOWN = 12  # digits of a hash


def isas(lab):
    """Of this machine, the narrowest first."""
    run = subprocess.run([lab, "info", "--json"], check=True, capture_output=True, text=True)
    widest = json.loads(run.stdout.splitlines()[0])["isa"]
    if widest == "neon":
        return ["scalar", "neon"]
    every = ["scalar", "avx2", "avx512"]
    return every[: every.index(widest) + 1]


def results(isa, threads, compiled, steps, runs, cache):
    """{run: (hash, what remained of PyTorch's)}. cache: of compiled code, which is of one kind of
    ATen's kernels."""
    command = [sys.executable, EXAMPLE, *runs, "--json", "--steps", str(steps)]
    command += ["--threads", str(threads), "--isa", isa, *(["--compile"] if compiled else [])]
    environment = os.environ | {
        "ATEN_CPU_CAPABILITY": ATEN[isa],
        "TORCHINDUCTOR_CACHE_DIR": str(cache / ATEN[isa]),
    }
    run = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    if run.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{run.stderr}")
    lines = map(json.loads, run.stdout.splitlines())
    return {line["run"]: (line["hash"], line["remaining"]) for line in lines}


def table(rows, runs):
    """Lines; a hash that differs from the first of its run is marked."""
    first = rows[0][1]
    yield (f"{'configuration':28}" + "".join(f"{name:{SHOWN + 3}}" for name in runs)).rstrip()
    for name, found in rows:
        cells = (
            found[run][0][:SHOWN] + (" " if found[run][0] == first[run][0] else "*") for run in runs
        )
        yield (f"{name:28}" + "  ".join(cells)).rstrip()


def named(isa, threads, compiled):
    return f"{isa} {threads} thread{'s' * (threads > 1)} {'compiled' if compiled else 'eager'}"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", default="1,2", help="numbers of threads, with commas")
    parser.add_argument("--isa", help="instruction sets, with commas; all of the machine if none")
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    parser.add_argument("--runs", default=",".join(RUNS), help="with commas")
    given = parser.parse_args(arguments)
    runs = given.runs.split(",")
    lab = Path(os.environ.get("ISOBIT_LIBRARIES", ROOT / "build" / "release")) / "isobit"
    chosen = given.isa.split(",") if given.isa else isas(lab)
    threads = [int(count) for count in given.threads.split(",")]
    rows, ways = [], list(product((False,) if given.eager else (False, True), chosen, threads))
    with tempfile.TemporaryDirectory() as folder:
        for compiled, isa, count in ways:
            name = named(isa, count, compiled)
            if sys.stderr.isatty():
                print(f"\r{len(rows)}/{len(ways)} {name:40}", end="", file=sys.stderr)
            found = results(isa, count, compiled, given.steps, runs, Path(folder))
            rows.append((name, found))
    if sys.stderr.isatty():
        print(f"\r{'':60}\r", end="", file=sys.stderr)
    print("\n".join(table(rows, runs)))
    different = [run for run in runs if len({found[run][0] for _, found in rows}) > 1]
    for run in different:
        print(f"\n{run}: the bits differ (*). PyTorch computes of it")
        print("\n".join(f"  {each}" for each in rows[0][1][run][1]))
    if not different:
        print("\nall configurations end with the same bits")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
