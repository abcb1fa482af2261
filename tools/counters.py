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
COMMITTED = ROOT / "bench" / "counters"
NORMS = "layernorm,rmsnorm --pass fwd,bwd --dtype f32,bf16"
LARGER = (
    f"{NORMS} --rows 256 --cols 768,1024,4096",
    f"{NORMS} --rows 64 --cols 16384,65536",
    "elementwise --rows 256 --cols 4096 --dtype f32,bf16",
    "transpose --batch 1 --rows 1000 --cols 1000 --dtype f32,bf16",
    "activation --pass fwd,bwd --function silu --with gate --rows 256 --cols 4096 --dtype f32,bf16",
    "rope --with cos+sin --seq 64 --heads 32 --kv-heads 8 --head-dim 128 --dtype f32,bf16",
    "scan --kind sum --outer 1 --length 1000000 --inner 1 --dtype f32,bf16",
)
# What is counted, a file each: every operation as it is usually called, whichever there are, and
# some in more columns.
GROUPS = {
    "usual-f32": ("--dtype f32",),
    "usual-bf16": ("--dtype bf16",),
    "larger": LARGER,
}
MORE_IS_WORSE = ("instructions", "loads", "stores", "banks", "local")
LESS_IS_WORSE = ("wide", "kib_in_flight")
TOLERANCE = 0.02


def numbered(kernels):
    """The kernels of a call by name; of several with one name, all but the first with a number."""
    by_name = {}
    for kernel in kernels:
        name = kernel["figures"].pop("name")
        same = sum(known.split(" ")[0] == name for known in by_name)
        by_name[f"{name} {same + 1}" if same else name] = kernel["figures"]
    return by_name


def counted(isobit, group):
    """{call: {kernel: figures}} of a group's calls, as the library's defaults have them."""
    calls = {}
    for call in GROUPS[group]:
        command = [isobit, "profile", *call.split(), "--device", "sass", "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"isobit profile {call}: {done.returncode}\n{done.stderr}")
        for line in map(json.loads, done.stdout.splitlines()):
            kernels = {
                name: {key: round(value, 3) for key, value in figures.items()}
                for name, figures in numbered(line["kernels"]).items()
            }
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


def path_of(group):
    return COMMITTED / f"sm_90a-{group}.jsonl"


def read(group):
    lines = [json.loads(line) for line in path_of(group).read_text().splitlines()]
    return {line.pop("call"): line for line in lines}


def write(group, calls):
    lines = (json.dumps({"call": call, **calls[call]}) for call in sorted(calls))
    path_of(group).write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isobit", default=ROOT / "build" / "release" / "isobit", type=Path)
    parser.add_argument("--update", action="store_true", help="write the committed files anew")
    args = parser.parse_args()
    found = []
    for group in GROUPS:
        today = counted(args.isobit, group)
        if args.update:
            write(group, today)
        else:
            found += compare(read(group), today)
    if args.update:
        return 0
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(found)} worse than committed; tools/counters.py --update takes today's")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
