# SPDX-License-Identifier: Apache-2.0
"""Compiles every kernel with clang for AMD's GPUs, and writes down its registers and spills.

It links what it compiled: build/release/libisobit_hip.so, which looks for HIP's run-time when it is
first used. Of AMD's software the build needs no more than that run-time's headers.
"""

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernels import (
    OUT,
    ROOT,
    SKIPPED,
    VERSION,
    chosen,
    included,
    linked,
    readable,
    sources,
    tested_only,
)

LIBRARY = ROOT / "build" / "release" / "libisobit_hip.so"
RUNTIME = ROOT / "src" / "isobit" / "simt" / "hip" / "runtime.cpp"
ARCHS = ["gfx942", "gfx90a", "gfx1100"]
# Where a spill fails. A thread of gfx1100 has 256 registers at most, and f64 needs more in three
# kernels of LayerNorm's backward.
NO_SPILL = ["gfx942", "gfx90a"]
CLANGS = range(19, 23)  # versions; the first is the one that was tried
TOOLS = {"lld": "lld", "clang-offload-bundler": "clang-tools", "llvm-readelf": "llvm"}
# The pinned arithmetic: no contraction, exact division and root, denormals kept. The last two are
# clang's default, but not in every configuration.
ARITHMETIC = [
    "-ffp-contract=off",
    "-fhip-fp32-correctly-rounded-divide-sqrt",
    "-fno-gpu-flush-denormals-to-zero",
]
# A call of a function keeps the kernel's parameters in memory, and registers across it: all that is
# not marked otherwise becomes part of its kernel, as by nvcc.
INLINED = ["-Xarch_device", "-mllvm=-inline-threshold=100000"]
FLAGS = ["-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]
FLAGS += ["-D__HIP_PLATFORM_AMD__", f'-DISOBIT_VERSION="{VERSION}"']
FLAGS += [f"-I{ROOT / 'src'}", f"-I{ROOT / 'tests'}", f"-fmacro-prefix-map={ROOT}/="]
# What the metadata of a code object says of each kernel.
NOTES = {
    "vgpr_count": "vgprs",
    "agpr_count": "agprs",
    "sgpr_count": "sgprs",
    "vgpr_spill_count": "spilled",
    "sgpr_spill_count": "spilled_scalars",
    "private_segment_fixed_size": "scratch",
    "group_segment_fixed_size": "shared",
    "max_flat_workgroup_size": "threads",
}
# Variants that decline on every AMD GPU; where they spill, it costs nobody anything.
NEVER_RUN = re.compile(
    r"WithinCluster|::Bulk<|Pipelined|simt::Product<|matmul::(Mma|Wgmma)<"
    r"|attention::(FlashMma|FlashWgmma|GradientsMma)<"
)
BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"


def beside(clang, tool):
    return str(Path(clang).resolve().parent / tool)


def find_clang():
    """The compiler and None; or None and what is missing."""
    clangs = filter(None, (shutil.which(f"clang++-{version}") for version in CLANGS))
    clang = next(clangs, None)
    version = CLANGS[0]
    if clang is None:
        return None, f"clang is not installed; Debian has it as clang-{version}"
    for tool, package in TOOLS.items():
        if not Path(beside(clang, tool)).exists():
            return None, f"{tool} is not installed; Debian has it in {package}-{version}"
    probe = ["-x", "c++", "-D__HIP_PLATFORM_AMD__", "-include", "hip/hip_runtime_api.h"]
    done = subprocess.run([clang, *probe, "-fsyntax-only", os.devnull], capture_output=True)
    if done.returncode != 0:
        return None, "HIP's headers are not installed; Debian has them in libamdhip64-dev"
    return clang, None


def hip_command(clang, archs, *more):
    """The compiler, told all that decides about bits. What it links to kernels, simt/hip has."""
    targets = [f"--offload-arch={arch}" for arch in archs]
    return [clang, "-x", "hip", *targets, "-nogpulib", *INLINED, *FLAGS, *ARITHMETIC, *more]


def code_objects(file):
    """(architecture, code) of what clang made: once in an object, once a source in a library."""
    data = Path(file).read_bytes()
    start = data.find(BUNDLE)
    while start >= 0:
        at = start + len(BUNDLE)
        (count,) = struct.unpack_from("<Q", data, at)
        at += 8
        for _ in range(count):
            offset, size, length = struct.unpack_from("<QQQ", data, at)
            target = data[at + 24 : at + 24 + length].decode()
            at += 24 + length
            if size > 0:
                yield target.rsplit("-", 1)[1], data[start + offset : start + offset + size]
        start = data.find(BUNDLE, at)


def told_by(clang, tool, flags, code):
    """What a tool of LLVM says of a code object."""
    with tempfile.NamedTemporaryFile(suffix=".co") as file:
        file.write(code)
        file.flush()
        command = [beside(clang, tool), *flags, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def parse(notes):
    """The kernels in a code object's metadata, as {name, and the values of NOTES}."""
    found = []
    for part in re.split(r"^ {2}- ", notes.partition("amdhsa.kernels:")[2], flags=re.MULTILINE)[1:]:
        values = dict(re.findall(r"^(?: {4})?\.(\w+): +(\S+)$", part, flags=re.MULTILINE))
        if "vgpr_count" in values:
            numbers = {to: int(values[note]) for note, to in NOTES.items() if note in values}
            found.append({"kernel": values["name"], **numbers})
    return found


def kernels_of(clang, file):
    """The same of all that a file has code for."""
    return [
        {**kernel, "arch": arch}
        for arch, code in code_objects(file)
        for kernel in parse(told_by(clang, "llvm-readelf", ["--notes"], code))
    ]


def approximate(code):
    """What in an assembler's text is left of an approximation: reciprocals and roots of which no
    exact quotient or root was made. Two quotients by one divisor may share a reciprocal, so each
    function is asked by itself."""
    found = Counter()
    for function in re.split(r"^[0-9a-f]+ <\S+>:$", code, flags=re.MULTILINE):
        found.update(approximate_of_function(function))
    return dict(found)


def approximate_of_function(code):
    count = Counter(re.findall(r"\bv_(?:dual_)?(\w+_f\d\d)", code))
    # Whole numbers of 64 bits are divided by way of a reciprocal times just below 2^64.
    whole = len(re.findall(r"\bv_mul_f32\w* .*0x5f7ffffc", code))
    found = {
        "reciprocals of f32": count["rcp_f32"] - count["div_fixup_f32"] - whole,
        "reciprocals of f64": count["rcp_f64"] - count["div_fixup_f64"],
        "inverse roots of f32": count["rsq_f32"],
        "roots of f64": count["sqrt_f64"],
    }
    return {name: number for name, number in found.items() if number > 0}


def fused(code):
    """The instructions that round a product and a sum at once, but for those by which whole numbers
    are divided: they multiply by 2^32."""
    names = r"\bv_(?:pk_|dual_)?(?:fma|fmac|mac|mad|fmaak|fmamk|madak|madmk)_(?:mix\w*_)?f.*"
    return [line for line in re.findall(names, code) if not re.search(r"0x[4c]f800000", line)]


def spills(kernel):
    """Whether a kernel that can run keeps in memory what it has no registers for. Scalars go to
    lanes of vector registers, not to memory; and what goes to the registers of accumulators takes
    no scratch."""
    in_memory = kernel.get("spilled", 0) > 0 and kernel.get("scratch", 0) > 0
    return in_memory and not NEVER_RUN.search(kernel["kernel"])


def object_of(source, archs):
    return OUT / f"{source.relative_to(ROOT).with_suffix('')}.{'-'.join(archs)}.o"


def compile_one(clang, source, archs):
    """Where, its kernels or None, and the seconds or the trouble."""
    target = object_of(source, archs)
    target.parent.mkdir(parents=True, exist_ok=True)
    ccache = ["ccache"] if shutil.which("ccache") else []
    command = [*ccache, *hip_command(clang, archs), *included(source)]
    command += ["-c", str(source), "-o", str(target)]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    where = source.relative_to(ROOT).as_posix()
    if done.returncode != 0 or done.stderr:
        return where, None, done.stderr
    return where, kernels_of(clang, target), f"{time.monotonic() - begin:.0f} s"


def link(clang, archs):
    """What is wrong with the library, or nothing."""
    runtime = OUT / "hip_runtime.o"
    command = [clang, *FLAGS, "-c", str(RUNTIME), "-o", str(runtime)]
    compiled = subprocess.run(command, capture_output=True, text=True)
    if compiled.returncode != 0 or compiled.stderr:
        return compiled.stderr
    command = [clang, "-shared", "-o", str(LIBRARY), str(runtime)]
    command += [str(object_of(source, archs)) for source in sources()]
    command += [str(LIBRARY.parent / "libisobit_all.a"), "-static-libstdc++", "-static-libgcc"]
    command += [f"-Wl,--version-script={ROOT / 'src' / 'isobit' / 'capi' / 'exports.map'}"]
    command += [
        "-Wl,--exclude-libs,ALL,--no-undefined,--gc-sections",
        f"-Wl,-soname,{LIBRARY.name}",
    ]
    return linked(command, LIBRARY, "isobit_hip_library")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--arch",
        default=ARCHS[0],
        help=f"some of {','.join(ARCHS)}; or all; or one, which the commit chooses",
    )
    args = parser.parse_args()
    archs = {"all": ARCHS, "one": chosen(ARCHS)}.get(args.arch, args.arch.split(","))

    clang, missing = find_clang()
    if clang is None:
        print(f"{missing}; the kernels were not compiled for AMD's GPUs")
        return 1 if os.environ.get("CI") else SKIPPED

    jobs = [*sources(), *tested_only()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda source: compile_one(clang, source, archs), jobs))

    failed = 0
    with (OUT / f"{'-'.join(archs)}.jsonl").open("w") as table:
        for where, kernels, told in results:
            if kernels is None:
                failed += 1
                print(f"{where} for {','.join(archs)}:\n{told}")
                continue
            names = readable([kernel["kernel"] for kernel in kernels]) if kernels else []
            for kernel, name in zip(kernels, names, strict=True):
                kernel |= {"kernel": name, "source": where}
                table.write(json.dumps(kernel) + "\n")
                if spills(kernel):
                    failed += kernel["arch"] in NO_SPILL
                    print(f"{name} for {kernel['arch']} spills {kernel['spilled']} registers")
            print(
                f"{where:44} {len(kernels):3} kernels, {most(kernels, 'vgprs'):3} VGPRs,"
                f" {most(kernels, 'sgprs'):3} SGPRs and {most(kernels, 'spilled_scalars'):3} in"
                f" VGPRs' lanes, {most(kernels, 'shared'):5} bytes of LDS, {told}"
            )
    if not failed:
        if (wrong := link(clang, archs)) is not None:
            failed += 1
            print(f"{LIBRARY.name}: {wrong}")
        else:
            kibibytes = LIBRARY.stat().st_size >> 10
            print(f"{LIBRARY.relative_to(ROOT)} for {', '.join(archs)}: {kibibytes} KiB")
    print(f"{failed} failed; all kernels: {Path(table.name).relative_to(ROOT)}")
    return 1 if failed else 0


def most(kernels, what):
    return max((kernel.get(what, 0) for kernel in kernels), default=0)


if __name__ == "__main__":
    sys.exit(main())
