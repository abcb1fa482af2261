# SPDX-License-Identifier: Apache-2.0
"""Checks what objects offer to the linker: kernels nothing shared, the library its C ABI."""

import re
import subprocess
import sys
from pathlib import Path


def symbols(nm, file, *options):
    """(kind, demangled name) of every symbol that a file defines for others."""
    command = [nm, "--demangle", "--defined-only", "--extern-only", *options, str(file)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [tuple(line.split(" ", 2)[1:]) for line in lines if line.count(" ") > 1]


def main(build, nm):
    problems = []
    # The linker keeps one of several weak definitions. One that names no instruction set could be
    # kept for every caller, though it was compiled for a processor that the caller lacks.
    kernels = sorted(
        file
        for objects in ("isobit_kernels", "isobit_vectors")
        for file in build.rglob(f"CMakeFiles/{objects}_*.dir/**/*.o")
    )
    if not kernels:
        problems.append(f"{build} holds no kernel objects")
    for file in kernels:
        isa = re.search(r"isobit_[a-z]+_(\w+)\.dir", str(file)).group(1)
        problems += [
            f"{file.name} for {isa}: offers {name}"
            for _, name in symbols(nm, file)
            if f"::{isa}::" not in name
        ]
    library = build / "libisobit.so"
    problems += [
        f"{library.name}: exports {name}"
        for _, name in symbols(nm, library, "--dynamic")
        if not name.startswith("isobit_")
    ]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
