# SPDX-License-Identifier: Apache-2.0
"""Audits dist/: that the wheel holds everything, asks of a machine what its tag says and no more,
and does not tell where it was made; that the sdist holds what a build needs. Prints their sizes."""

import argparse
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
# What Debian 12, Ubuntu 22.04, RHEL 9 and all later systems have.
FLOOR = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (11,)}
SYSTEM = re.compile(r"(libc|libm|libgcc_s|libstdc\+\+|ld-linux-(x86-64|aarch64))\.so\.\d")
TORCH = re.compile(r"libtorch(_cpu)?\.so")  # in the process already when an adapter is loaded
FOREIGN = re.compile(r"_?Py[A-Z_]\w*|_ZN?\w*(c10|torch|2at)\w*")  # in no version's stable interface
LIMITED_API = "_isobit_fast.abi3.so"  # the compiler held it to that
NATIVE = ("isobit", "libisobit.so", "isobit_torch_cpu.so", "isobit_torch_cuda.so", LIMITED_API)
PYTHON = (
    "__init__.py",
    "torch/__init__.py",
    "lab/report.css",
    "ops/layernorm/triton.py",
    "ops/triton_norms.py",
    "ops/elementwise/pytorch.py",
)
IN_SDIST = ("CMakeLists.txt", "VERSION", "LICENSE", "NOTICE", "src/isobit/capi/call.cpp")


def platform_tag():
    major, minor = FLOOR["GLIBC"]
    return f"manylinux_{major}_{minor}_{platform.machine()}"


def read(option, file):
    command = ["readelf", option, "--wide", file]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def demands(file, beside):
    """What a binary asks for beyond the tag."""
    dynamic = read("--dynamic", file)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    problems = [
        f"needs {name}"
        for name in needed
        if not (SYSTEM.fullmatch(name) or TORCH.fullmatch(name) or name in beside)
    ]
    if beside.intersection(needed) and "[$ORIGIN]" not in dynamic:
        problems.append("does not look beside itself for what it needs")
    symbols = read("--dyn-syms", file)
    for family, number in sorted(set(re.findall(r"@([A-Z]+)_([\d.]+)", symbols))):
        if family in FLOOR and tuple(map(int, number.split("."))) > FLOOR[family]:
            problems.append(f"needs {family}_{number}")
    if file.name != LIMITED_API:
        wanted = re.findall(r" UND (\w+)", symbols)
        problems += [f"needs {name}" for name in wanted if FOREIGN.fullmatch(name)]
    return problems


def wheel_problems(wheel):
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        package = Path(folder) / "isobit"
        binaries = sorted((package / "native").iterdir())
        beside = {binary.name for binary in binaries}
        wanted = [package / name for name in PYTHON]
        problems = [f"lacks {path.name}" for path in wanted if not path.exists()]
        problems += [
            f"lacks {name}"
            for name in NATIVE
            if not any(re.fullmatch(rf"{re.escape(name)}(\.[\d.]+)?", file) for file in beside)
        ]
        for binary in binaries:
            problems += [f"{binary.name} {demand}" for demand in demands(binary, beside)]
        problems += [
            f"{path.relative_to(folder)} tells where it was made"
            for path in Path(folder).rglob("*")
            if path.is_file() and str(ROOT).encode() in path.read_bytes()
        ]
    if not wheel.name.endswith(f"-py3-none-{platform_tag()}.whl"):
        problems.append(f"is not for every Python 3 on {platform_tag()}")
    return problems


def sdist_problems(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    made_here = sorted(name for name in names if re.match(r"(build|dist|\.venv)/", name))
    return [f"lacks {name}" for name in IN_SDIST if name not in names] + [
        f"holds {name}" for name in made_here
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--platform", action="store_true", help="print the wheel's platform tag")
    if parser.parse_args().platform:
        print(platform_tag())
        return 0
    failed = 0
    for pattern, problems_of in (("*.whl", wheel_problems), ("*.tar.gz", sdist_problems)):
        (file,) = DIST.glob(pattern)
        problems = problems_of(file)
        failed += len(problems)
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size / (1 << 20):.1f} MiB")
        print(*(f"  {problem}" for problem in problems), sep="\n", end="\n" if problems else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
