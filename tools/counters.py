# SPDX-License-Identifier: Apache-2.0
"""The committed counters of the default kernels: written anew, or compared with today's.

`isobit profile` counts them as it executes their PTX, so no GPU is needed and no machine disturbs
them; another nvcc may change them.
"""

import argparse
import itertools
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = ROOT / "bench" / "counters" / "sm_90a.jsonl"
NORMS = "layernorm,rmsnorm --pass fwd,bwd --dtype f32,bf16"
CALLS = (
    f"{NORMS} --rows 256 --cols 768,1024,4096",
    f"{NORMS} --rows 64 --cols 16384,65536",
    "elementwise --rows 256 --cols 4096 --dtype f32,bf16",
    "transpose --batch 1 --rows 1000 --cols 1000 --dtype f32,bf16",
    "activation --pass fwd,bwd --function silu --with gate --rows 256 --cols 4096 --dtype f32,bf16",
    "rope --with cos+sin --seq 64 --heads 32 --kv-heads 8 --head-dim 128 --dtype f32,bf16",
    "scan --kind sum --outer 1 --length 1000000 --inner 1 --dtype f32,bf16",
)
MORE_IS_WORSE = ("instructions", "loads", "stores", "banks", "local")
LESS_IS_WORSE = ("wide", "kib_in_flight")
TOLERANCE = 0.02


def counted(isobit):
    """{call: {kernel: figures}}, as the library's defaults have them."""
    calls = {}
    for call in CALLS:
        command = [isobit, "profile", *call.split(), "--device", "sass", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        for line in map(json.loads, done.stdout.splitlines()):
            kernels = {}
            for kernel in line["kernels"]:
                figures = kernel["figures"]
                name = figures.pop("name")
                kernels[name] = {key: round(value, 3) for key, value in figures.items()}
            model = {gpu: round(of["fraction_of_copy"], 2) for gpu, of in line["model"].items()}
            what = itertools.takewhile(lambda item: item[0] != "weight_dtype", line.items())
            name = " ".join(str(value) for _, value in what)
            calls[name] = {"variant": line["variant"], "kernels": kernels, "model": model}
    return calls


def worse(before, after):
    """What of a kernel is worse than it was, a line each."""
    for key in (*MORE_IS_WORSE, *LESS_IS_WORSE):
        old, new = before[key], after[key]
        more, less = (new, old) if key in MORE_IS_WORSE else (old, new)
        if more > less * (1 + TOLERANCE) + 1e-9:
            yield f"{key} {old} -> {new}"


def compare(before, after):
    """What is worse, or not to be compared."""
    for call in sorted(before.keys() | after.keys()):
        if call not in before or call not in after:
            yield f"{call}: {'is new' if call in after else 'is gone'}"
            continue
        kernels = before[call]["kernels"]
        for kernel, figures in after[call]["kernels"].items():
            if kernel not in kernels:
                yield f"{call}: {kernel} is new"
            else:
                for what in worse(kernels[kernel], figures):
                    yield f"{call}: {kernel}: {what}"


def read(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line.pop("call"): line for line in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isobit", default=ROOT / "build" / "release" / "isobit", type=Path)
    parser.add_argument("--update", action="store_true", help="write the committed file anew")
    args = parser.parse_args()
    today = counted(args.isobit)
    if args.update:
        COMMITTED.parent.mkdir(exist_ok=True)
        lines = (json.dumps({"call": call, **today[call]}) for call in sorted(today))
        COMMITTED.write_text("\n".join(lines) + "\n")
        return 0
    found = list(compare(read(COMMITTED), today))
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(found)} worse than committed; tools/counters.py --update takes today's")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
