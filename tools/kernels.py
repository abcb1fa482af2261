# SPDX-License-Identifier: Apache-2.0
"""Compiles every kernel with nvcc, and writes down its registers, shared memory and spills.

For the GPUs that plans are made for, it links what it compiled: build/release/libisobit_cuda.so;
and with an executor in the place of CUDA's run-time, which needs no GPU, libisobit_ptx.so, which
executes the objects' PTX, and libisobit_sass.so, which executes their machine code.
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

import machine_code

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "kernels"
LIBRARY = ROOT / "build" / "release" / "libisobit_cuda.so"
EXECUTOR = ROOT / "build" / "release" / "libisobit_ptx.so"
MACHINE_EXECUTOR = EXECUTOR.with_name("libisobit_sass.so")
VERSION = (ROOT / "VERSION").read_text().strip()
EVERY_DAY = ["90a"]  # what the plans are made for
OTHERS = ["75", "80", "86", "89", "100", "120"]
LATER = "100"  # GPUs that come later compile this one's PTX
# The pinned arithmetic; formulas are for both sides, and call what a row offers on its own.
FLAGS = [
    "-std=c++20",
    "-fmad=false",
    "--expt-relaxed-constexpr",
    "-diag-suppress",
    "20011,20014",
]
# Where a spill fails. Plans are made for these; sm_120 takes up to 8 bytes in LayerNorm's forward.
NO_SPILL = range(80, 104)
# What the machine code of a kernel must hold, by its name: how it claims to move memory.
CLAIMS = (
    (r"activation::Vec16<", (r"LDG\.E\S*\.128\b", r"STG\.E\S*\.128\b")),
    (r"elementwise::Vec16<", (r"LDG\.E\S*\.128\b", r"STG\.E\S*\.128\b")),
    (r"elementwise::Bulk<", (r"UBLKCP\b", r"LDS\.128\b", r"STG\.E\S*\.128\b")),
    (
        r"transpose::Vectors<",
        (r"LDG\.E\S*\.128\b", r"STS\.128\b", r"LDS\.128\b", r"STG\.E\S*\.128\b"),
    ),
    (r"transpose::Bulk<", (r"UBLKCP\b", r"LDS\.128\b", r"STG\.E\S*\.128\b")),
    (r"norms::(Forward|OnePass|Rows|Columns)Kernel<", (r"LDG\.E\S*\.128\b",)),
    (r"norms::(Forward|OnePass)Kernel<", (r"STG\.E\S*\.128\b",)),
    (r"norms::Pipelined\w+<", (r"UBLKCP\b", r"LDS\.128\b", r"STG\.E\S*\.128\b")),
    (r"simt::Product<", (r"LDSM\.16\.M88\.4\b", r"LDSM\.16\.MT88\.4\b", r"HMMA\.16816\.F32\b")),
    (
        r"matmul::Mma<",
        (r"LDGSTS\.E\S*\.128\b", r"LDSM\.16\.MT?88\.4\b", r"HMMA\.16816\.F32\b", r"STS\b"),
    ),
    (
        r"matmul::Wgmma<",
        (r"UTMALDG\.3D\b", r"HGMMA\.64x128x16\.F32\b", r"WARPGROUP\.DEPBAR\b", r"STS\b"),
    ),
    (
        r"attention::(FlashMma|GradientsMma)<",
        (
            r"LDGSTS\.E\S*\.128\b",
            r"LDSM\.16\.M88\.4\b",
            r"LDSM\.16\.MT88\.4\b",
            r"HMMA\.16816\.F32\b",
        ),
    ),
    (
        r"attention::FlashWgmma<",
        (
            r"UTMALDG\.3D\b",
            r"HGMMA\.64x128x16\.F32\b",
            r"HGMMA\.64x64x16\.F32\b",
            r"WARPGROUP\.DEPBAR\b",
            r"USETMAXREG\b",
        ),
    ),
    (r"ClusterOfBlocks|WithinCluster", (r"UCGABAR_WAIT\b|BAR\S*CLUSTER|MAPA\b",)),
)
SKIPPED = 77  # tools/suite.py says so in its last lines
# What takes longest to compile, the longest first: it begins first, so that no processor waits for
# it at the end.
LONGEST = (
    "scan/cuda.cu",
    "layernorm/cuda_backward.cu",
    "rmsnorm/cuda_backward.cu",
    "layernorm/cuda_forward.cu",
    "rmsnorm/cuda_forward.cu",
    "reduce/cuda.cu",
    "channel_norm/cuda.cu",
    "attention/cuda_flash.cu",
    "attention/cuda_mma.cu",
    "attention/cuda_mma_backward.cu",
)


def find_nvcc():
    """A toolkit's compiler, or the one that tools/venv installed where there is no toolkit."""
    places = [shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]
    places += ROOT.glob(".venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc")
    return next((str(place) for place in places if place and Path(place).exists()), None)


def sources():
    return sorted((ROOT / "src" / "isobit").rglob("*.cu"))


def longest_first(files):
    def place(source):
        name = "/".join(source.parts[-2:])
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    return sorted(files, key=place)


def tested_only():
    """Kernels that no library has."""
    return sorted((ROOT / "tests").rglob("*.cu"))


def parse(log):
    """The kernels in what ptxas says, as {name, registers, shared, spilled}."""
    kernels, name, spilled = [], None, 0  # a kernel's last lines may be of functions that it calls
    for line in log.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            name = found[1]
        elif found := re.search(r"(\d+) bytes spill stores", line):
            spilled = int(found[1])
            if name is None and kernels:
                kernels[-1]["spilled"] += spilled
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


def interface():
    """The header with the fingerprint of the structs that libraries share."""
    header = OUT / "interface.h"
    script = ROOT / "cmake" / "interface.cmake"
    subprocess.run(["cmake", f"-DFILE={header}", "-P", str(script)], check=True)
    return header


def included(source):
    """What the compiler is told to include in a source: in that one alone, so that another
    fingerprint compiles no kernel anew."""
    return ["-include", str(interface())] if source.name == "gpu_library.cu" else []


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
    command += [*included(source), "-Xfatbin=-compress-all"]
    if archs == EVERY_DAY:  # the executor reads their PTX
        command += ["--compress-mode=speed"]
    for arch in archs:
        code = f"[sm_{arch},compute_{arch}]" if archs == EVERY_DAY else f"sm_{arch}"
        command += ["-gencode", f"arch=compute_{arch},code={code}"]
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
    """The kernels whose machine code lacks an instruction which they claim."""

    def claims_of(source):
        text = text_of(object_of(source, [arch])).read_text()
        functions = re.split(r"^\.function ", text, flags=re.MULTILINE)[1:]
        names = readable([function.split("\n", 1)[0] for function in functions])
        return [
            f"{name}: no {instruction}"
            for name, function in zip(names, functions, strict=True)
            for kernels, instructions in CLAIMS
            if re.search(kernels, name)
            for instruction in instructions
            if not re.search(instruction, function)
        ]

    return [claim for source in [*sources(), *tested_only()] for claim in claims_of(source)]


def link(nvcc, archs, library, *executor):
    """What is wrong with the library, or nothing."""
    command = [nvcc, "-shared", "-cudart", "none" if executor else "static", "-o", str(library)]
    command += [str(object_of(source, archs)) for source in sources()]
    command += [*map(str, executor), str(library.parent / "libisobit_all.a")]
    command += ["-Xlinker", "--exclude-libs,ALL,--no-undefined,--gc-sections"]
    command += ["-Xlinker", f"-soname,{library.name}"]
    return linked(command, library, "isobit_cuda_library")


def linked(command, library, entry):
    """The same, of a library that a command links and that shows one function."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return done.stderr
    try:
        ask = getattr(ctypes.CDLL(str(library)), entry)
    except (OSError, AttributeError) as error:
        return str(error)
    ask.restype = ctypes.c_void_p
    fingerprint = re.search(r'"(\w+)"', interface().read_text())[1]
    known = ask(f"{VERSION} {fingerprint}".encode())
    return "it does not know its version" if known is None else None


def runtime_of_executor():
    return OUT / "executor_runtime.o"


def make_runtime(nvcc):
    """What is wrong with the executor and its run-time, or nothing."""
    built = subprocess.run(
        ["cmake", "--build", str(EXECUTOR.parent), "--target", "isobit_executor"],
        capture_output=True,
        text=True,
    )
    if built.returncode != 0:
        return built.stdout + built.stderr
    source = ROOT / "src" / "isobit" / "executor" / "runtime.cpp"
    command = [nvcc, "-std=c++20", "-O2", f"-I{ROOT / 'src'}", "-Xcompiler"]
    command += ["-fPIC,-fvisibility=hidden,-Wall,-Wextra", "-c", str(source)]
    compiled = subprocess.run(
        [*command, "-o", str(runtime_of_executor())], capture_output=True, text=True
    )
    if compiled.returncode != 0 or "warning" in compiled.stderr:
        return compiled.stderr
    return None


def link_executor(nvcc, library, *code):
    """What is wrong with a library that executes what nvcc made, or nothing."""
    archive = library.parent / "libisobit_executor.a"
    return link(nvcc, EVERY_DAY, library, runtime_of_executor(), *code, archive)


def text_of(file):
    return file.with_suffix(".sass")


def write_machine_text(tool, file):
    """Writes the machine code of an object as text, unless that stands there: ccache brings back
    the same object with another time."""
    known = file.with_suffix(".sass.sha256")
    script = Path(machine_code.__file__).read_bytes()
    digest = hashlib.sha256(script + file.read_bytes()).hexdigest()
    if text_of(file).exists() and known.exists() and known.read_text() == digest:
        return
    text_of(file).write_text(machine_code.text_of(tool, file))
    known.write_text(digest)


def machine_object(texts, target):
    """An object with the texts one behind the other, for the linker."""
    lines = [".section .rodata", ".globl isobit_machine_code_begin, isobit_machine_code_end"]
    lines += [".hidden isobit_machine_code_begin, isobit_machine_code_end"]
    lines += ["isobit_machine_code_begin:", *(f'.incbin "{text}"' for text in texts)]
    lines += ["isobit_machine_code_end:", '.section .note.GNU-stack,"",@progbits', ""]
    assembly = target.with_suffix(".s")
    assembly.write_text("\n".join(lines))
    subprocess.run(["as", "-o", target, assembly], check=True)
    return target


def link_machine_executor(nvcc):
    """What is wrong with libisobit_sass.so, or nothing."""
    texts = [text_of(object_of(source, EVERY_DAY)) for source in sources()]
    code = machine_object(texts, OUT / "machine_code.o")
    return link_executor(nvcc, MACHINE_EXECUTOR, code)


def link_all(nvcc, tool):
    """Links what was compiled for every day; what is wrong with the libraries, and claims
    unfounded."""
    jobs = {LIBRARY: lambda: link(nvcc, EVERY_DAY, LIBRARY)}
    jobs[EXECUTOR] = lambda: link_executor(nvcc, EXECUTOR)
    if tool is not None:
        jobs[MACHINE_EXECUTOR] = lambda: link_machine_executor(nvcc)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = {library: pool.submit(job) for library, job in jobs.items()}
        wrong = unfounded(*EVERY_DAY) if tool is not None else []
    for library, told in made.items():
        name = library.relative_to(ROOT)
        if told.result() is None:
            print(f"{name}: {library.stat().st_size >> 10} KiB")
        else:
            wrong.append(f"{name}: {told.result()}")
    if tool is None:
        print("cuobjdump is not installed: libisobit_sass.so was not linked")
        print("cuobjdump is not installed: the machine code was not checked")
    return wrong


def chosen(archs):
    """One of them, by the commit: all take long."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).stdout
    return [min(archs, key=lambda arch: hashlib.sha256(head + arch.encode()).digest())]


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
    parser.add_argument(
        "--others", action="store_true", help="one other architecture, chosen by the commit"
    )
    parser.add_argument(
        "--arch", help=f"these architectures instead; supported: {','.join(OTHERS)}"
    )
    parser.add_argument(
        "--library",
        type=Path,
        help="links this one file for --arch, or for all, beside whose libisobit_all.a it lies",
    )
    args = parser.parse_args()
    archs = args.arch.split(",") if args.arch else chosen(OTHERS) if args.others else EVERY_DAY

    nvcc = find_nvcc()
    if nvcc is None:
        print("nvcc is not installed: the kernels were not compiled, and ran in the emulator only")
        return 1 if os.environ.get("CI") or args.library else SKIPPED
    if args.library:
        return make_library(nvcc, archs if args.arch else [*EVERY_DAY, *OTHERS], args.library)

    tool = machine_code.find_tool() if archs == EVERY_DAY else None

    def compiled(source, arch):
        where, kernels, told = compile_one(nvcc, source, [arch])
        if kernels is not None and tool is not None:
            write_machine_text(tool, object_of(source, [arch]))
        return arch, where, kernels, told

    files = longest_first([*sources(), *tested_only()])
    jobs = [(source, arch) for arch in archs for source in files]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runtime = pool.submit(make_runtime, nvcc) if archs == EVERY_DAY else None
        results = list(pool.map(lambda job: compiled(*job), jobs))

    wrong = []
    with (OUT / f"{'-'.join(archs)}.jsonl").open("w") as table:
        for arch, where, kernels, told in results:
            if kernels is None:
                wrong.append(f"{where} for sm_{arch}:\n{told}")
                continue
            for kernel, name in zip(kernels, readable([k["kernel"] for k in kernels]), strict=True):
                kernel |= {"kernel": name, "source": where, "arch": f"sm_{arch}"}
                table.write(json.dumps(kernel) + "\n")
                spills = f"{name} for sm_{arch} spills {kernel['spilled']} bytes"
                if kernel["spilled"] > 0 and int(arch.rstrip("a")) in NO_SPILL:
                    wrong.append(spills)
                elif kernel["spilled"] > 0:
                    print(spills)
            most = max((k["registers"] for k in kernels), default=0)
            print(f"sm_{arch:4} {where:44} {len(kernels):3} kernels, {most:3} registers, {told}")
    if runtime is not None and (told := runtime.result()) is not None:
        wrong.append(f"the executor: {told}")
    if archs == EVERY_DAY and not wrong:
        wrong += link_all(nvcc, tool)
    # At the end, of which tools/suite.py shows some lines once more.
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{len(wrong)} failed; all kernels: {Path(table.name).relative_to(ROOT)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
