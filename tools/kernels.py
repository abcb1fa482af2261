# SPDX-License-Identifier: Apache-2.0
"""Compiles every kernel with nvcc, and writes down its registers, shared memory and spills.

For the GPUs that plans are made for, it links what it compiled: build/release/libisobit_cuda.so.
With --library it makes one for all GPUs that are named, which a wheel carries.
"""

import argparse
import ctypes
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "kernels"
LIBRARY = ROOT / "build" / "release" / "libisobit_cuda.so"
VERSION = (ROOT / "VERSION").read_text().strip()
EVERY_DAY = ["90a"]  # what the plans are made for
OTHERS = ["75", "80", "86", "89", "100", "120"]
LATER = "100"  # GPUs that come later compile this one's PTX
# The pinned arithmetic; formulas are for both sides, and call what a row offers on its own.
FLAGS = [
    "-std=c++20",
    "-fmad=false",
    "--expt-relaxed-constexpr",
    "-Xfatbin=-compress-all",
    "-diag-suppress",
    "20011,20014",
]
# Where a spill fails. Plans are made for these; sm_120 takes up to 8 bytes in LayerNorm's forward.
NO_SPILL = range(80, 104)
# What the machine code of a kernel must hold, by its name: how it claims to move memory.
CLAIMS = (
    (r"elementwise::Vec16<", (r"LDG\.E\S*\.128\b", r"STG\.E\S*\.128\b")),
    (r"elementwise::Bulk<", (r"UBLKCP\b", r"LDS\.128\b", r"STG\.E\S*\.128\b")),
    (r"norms::(Forward|OnePass|Rows|Columns)Kernel<", (r"LDG\.E\S*\.128\b",)),
    (r"norms::(Forward|OnePass)Kernel<", (r"STG\.E\S*\.128\b",)),
    (r"norms::Pipelined\w+<", (r"UBLKCP\b", r"LDS\.128\b", r"STG\.E\S*\.128\b")),
    (r"simt::Product<", (r"LDSM\.16\.M88\.4\b", r"LDSM\.16\.MT88\.4\b", r"HMMA\.16816\.F32\b")),
    (r"ClusterOfBlocks|WithinCluster", (r"UCGABAR_WAIT\b|BAR\S*CLUSTER|MAPA\b",)),
)
SKIPPED = 77  # tools/suite.py says so in its last lines


def find_nvcc():
    """A toolkit's compiler, or the one that tools/venv installed where there is no toolkit."""
    places = [shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]
    places += ROOT.glob(".venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc")
    return next((str(place) for place in places if place and Path(place).exists()), None)


def sources():
    return sorted((ROOT / "src" / "isobit").rglob("*.cu"))


def tested_only():
    """Kernels that no library has."""
    return sorted((ROOT / "tests").rglob("*.cu"))


def parse(log):
    """The kernels in what ptxas says, as {name, registers, shared, spilled}."""
    kernels, name, spilled = [], None, 0
    for line in log.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            name = found[1]
        elif found := re.search(r"(\d+) bytes spill stores", line):
            spilled = int(found[1])
        elif (found := re.search(r"Used (\d+) registers", line)) and name:
            shared = re.search(r"(\d+) bytes smem", line)
            kernels.append(
                {
                    "kernel": name,
                    "registers": int(found[1]),
                    "shared": int(shared[1]) if shared else 0,
                    "spilled": spilled,
                }
            )
            name = None
    return kernels


def readable(names):
    """C++ names without what all of them share."""
    plain = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = (re.search(r"enter<(.*)>\(", name) for name in plain)
    kernels = (match[1] if match else name for match, name in zip(found, plain, strict=True))
    return [re.sub(r"isobit::|\(anonymous namespace\)::|detail::", "", name) for name in kernels]


def object_of(source, archs):
    return OUT / f"{source.relative_to(ROOT).with_suffix('')}.sm_{'-'.join(archs)}.o"


def compile_one(nvcc, source, archs):
    target = object_of(source, archs)
    target.parent.mkdir(parents=True, exist_ok=True)
    ccache = ["ccache"] if shutil.which("ccache") else []
    command = [
        *ccache,
        nvcc,
        *FLAGS,
        f'-DISOBIT_VERSION="{VERSION}"',
        f"-I{ROOT / 'src'}",
        f"-I{ROOT / 'tests'}",
    ]
    for arch in archs:
        command += ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
        if arch == LATER and len(archs) > 1:
            command += ["-gencode", f"arch=compute_{arch},code=compute_{arch}"]
    command += ["-Xptxas", "-v"]
    command += ["-Xcompiler", "-fPIC,-fvisibility=hidden", "-c", str(source), "-o", str(target)]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    where = source.relative_to(ROOT).as_posix()
    lines = [line for line in done.stderr.splitlines() if "ptxas info" not in line]
    if done.returncode != 0 or any("warning" in line for line in lines):
        return where, None, "\n".join(lines)
    return where, parse(done.stderr), f"{time.monotonic() - begin:.0f} s"


def unfounded(arch):
    """The kernels that lack an instruction which they claim; None where nobody can look."""
    bins = [*ROOT.glob(".venv/lib/python3*/site-packages/nvidia/cu13/bin"), None]
    tool = shutil.which("cuobjdump") or (bins[0] and bins[0] / "cuobjdump")
    if not tool or not Path(tool).exists():
        return None
    env = {**os.environ, "PATH": f"{Path(tool).parent}:{os.environ['PATH']}"}

    def claims_of(source):
        command = [tool, "-sass", object_of(source, [arch])]
        text = subprocess.run(command, capture_output=True, text=True, env=env).stdout
        functions = re.split(r"^\s*Function : ", text, flags=re.MULTILINE)[1:]
        names = readable([function.split("\n", 1)[0] for function in functions])
        return [
            f"{name}: no {instruction}"
            for name, function in zip(names, functions, strict=True)
            for kernels, instructions in CLAIMS
            if re.search(kernels, name)
            for instruction in instructions
            if not re.search(instruction, function)
        ]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [
            claim for found in pool.map(claims_of, [*sources(), *tested_only()]) for claim in found
        ]


def link(nvcc, archs, library):
    """What is wrong with the library, or nothing."""
    command = [nvcc, "-shared", "-cudart", "static", "-o", str(library)]
    command += [str(object_of(source, archs)) for source in sources()]
    command += [str(library.parent / "libisobit_all.a")]
    command += ["-Xlinker", "--exclude-libs,ALL,--no-undefined,--gc-sections"]
    command += ["-Xlinker", f"-soname,{LIBRARY.name}"]
    linked = subprocess.run(command, capture_output=True, text=True)
    if linked.returncode != 0:
        return linked.stderr
    try:
        entry = ctypes.CDLL(str(library)).isobit_cuda_library
    except (OSError, AttributeError) as error:
        return str(error)
    entry.restype = ctypes.c_void_p
    return "it does not know its version" if entry(VERSION.encode()) is None else None


def chosen():
    """One of the others: all six take as long as the rest of `make test`."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).stdout
    return [min(OTHERS, key=lambda arch: hashlib.sha256(head + arch.encode()).digest())]


def make_library(nvcc, archs, library):
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda source: compile_one(nvcc, source, archs), sources()))
    wrong = [f"{where}:\n{told}" for where, kernels, told in results if kernels is None]
    if not wrong and (told := link(nvcc, archs, library)) is not None:
        wrong = [told]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--others", action="store_true", help="one other, as the commit chooses")
    parser.add_argument("--arch", help=f"these instead, of which there are {','.join(OTHERS)}")
    parser.add_argument(
        "--library",
        type=Path,
        help="links this one file for --arch, or for all, beside whose libisobit_all.a it lies",
    )
    args = parser.parse_args()
    archs = args.arch.split(",") if args.arch else chosen() if args.others else EVERY_DAY

    nvcc = find_nvcc()
    if nvcc is None:
        print("there is no nvcc: the kernels ran in the emulator only, and were not compiled")
        return 1 if os.environ.get("CI") or args.library else SKIPPED
    if args.library:
        return make_library(nvcc, archs if args.arch else [*EVERY_DAY, *OTHERS], args.library)

    jobs = [(source, arch) for arch in archs for source in [*sources(), *tested_only()]]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda job: (job[1], *compile_one(nvcc, job[0], [job[1]])), jobs))

    failed = 0
    with (OUT / f"{'-'.join(archs)}.jsonl").open("w") as table:
        for arch, where, kernels, told in results:
            if kernels is None:
                failed += 1
                print(f"{where} for sm_{arch}:\n{told}")
                continue
            for kernel, name in zip(kernels, readable([k["kernel"] for k in kernels]), strict=True):
                kernel |= {"kernel": name, "source": where, "arch": f"sm_{arch}"}
                table.write(json.dumps(kernel) + "\n")
                if kernel["spilled"] > 0:
                    print(f"{name} for sm_{arch} spills {kernel['spilled']} bytes")
                    failed += int(arch.rstrip("a")) in NO_SPILL
            most = max((k["registers"] for k in kernels), default=0)
            print(f"sm_{arch:4} {where:44} {len(kernels):3} kernels, {most:3} registers, {told}")
    if archs == EVERY_DAY and not failed:
        if (wrong := link(nvcc, archs, LIBRARY)) is not None:
            failed += 1
            print(f"{LIBRARY.name}: {wrong}")
        else:
            print(f"{LIBRARY.relative_to(ROOT)}: {LIBRARY.stat().st_size >> 10} KiB")
        claims = unfounded(*archs)
        failed += len(claims or [])
        print(*(claims or []), sep="\n", end="\n" if claims else "")
        if claims is None:
            print("there is no cuobjdump: nobody looked at the machine code")
    print(f"{failed} failed; all kernels: {Path(table.name).relative_to(ROOT)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
