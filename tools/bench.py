# SPDX-License-Identifier: Apache-2.0
"""Stores the lines of `isobit bench` in bench/results/, a file for each operator, under a header
that says how they came."""

import json
import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAB = ROOT / "build" / "release" / "isobit"
NUMBERS = ("cpu family", "model")
PEERS = ("torch", "numpy", "onednn-cpu-gomp")


def output(*command):
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True).stdout.strip()


def cpu():
    """Its name, and its numbers, as machines in a cloud are named after their maker alone."""
    path = Path("/proc/cpuinfo")
    info = path.read_text() if path.exists() else ""
    fields = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", info.partition("\n\n")[0], re.MULTILINE))
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{key.split()[-1]} {fields[key]}" for key in NUMBERS if key in fields]
    return ", ".join([name, *numbers])


def version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def header(arguments):
    return {
        "device": cpu(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "compiler": output("c++", "--version").splitlines()[0],
        "versions": {name: version(name) for name in PEERS if version(name)},
        "commit": output("git", "rev-parse", "--verify", "HEAD") or None,
        "uncommitted_changes": bool(output("git", "status", "--porcelain", "src", "bench/peers")),
        "command": " ".join(["isobit", "bench", *arguments]),
    }


def main(arguments):
    if not arguments or arguments[0].startswith("-"):
        sys.exit("usage: tools/bench.py OP[,OP...] [FLAGS OF isobit bench]")
    head = header(arguments)
    machine = re.sub(r"[^a-z0-9]+", "-", f"{head['device']} {head['cpus']}cpu".lower()).strip("-")
    folder = ROOT / "bench" / "results" / machine
    run = subprocess.run([LAB, "bench", *arguments, "--json"], stdout=subprocess.PIPE, text=True)
    if run.returncode:
        return run.returncode
    folder.mkdir(parents=True, exist_ok=True)
    lines = run.stdout.splitlines(keepends=True)
    for operator in dict.fromkeys(json.loads(line)["op"] for line in lines):
        results = folder / f"bench-{operator}.jsonl"
        own = (line for line in lines if json.loads(line)["op"] == operator)
        results.write_text(json.dumps(head) + "\n" + "".join(own))
        print(results.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
