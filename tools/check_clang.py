# SPDX-License-Identifier: Apache-2.0
"""Reads the C++ sources that differ from the last commit with clang, as far as they are built.

CI builds with clang only in turns, and gcc takes what clang does not: in C++20 a lambda that
captures a structured binding, for one.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ROOT / "build" / "release" / "compile_commands.json"
INCLUDED = re.compile(r'#include "(.+)"')  # by CMake, of sources that are built together


def changed():
    """Sources that the next commit would change or add."""
    listed = ("git", "ls-files", "--modified", "--others", "--exclude-standard", "*.cpp")
    staged = ("git", "diff", "--cached", "--name-only", "--diff-filter=d", "--", "*.cpp")
    names = set()
    for command in (listed, staged):
        names |= set(subprocess.check_output(command, cwd=ROOT, text=True).split())
    return [ROOT / name for name in sorted(names) if (ROOT / name).exists()]


def built():
    """How each source is built: (folder, words of the command but for the source)."""
    found = {}
    for entry in json.loads(COMMANDS.read_text()):
        words = shlex.split(entry["command"])
        source = Path(entry["file"])
        together = INCLUDED.findall(source.read_text()) if "Unity" in source.parts else ()
        for name in (source, *map(Path, together)):
            found[name] = (entry["directory"], words[1 : words.index("-o")])
    return found


def main():
    sources = changed()
    if not sources or not COMMANDS.exists():
        return 0
    if shutil.which("clang++") is None:
        print("check_clang: clang++ is not installed; CI will read these sources with it")
        return 0
    commands = built()

    def errors(source):
        folder, words = commands[source]
        command = [
            "clang++",
            *words,
            "-fsyntax-only",
            "-Werror",
            "-Wno-unknown-warning-option",
            str(source),
        ]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        return run.stderr if run.returncode else ""

    with ThreadPoolExecutor() as threads:
        found = [*filter(None, threads.map(errors, filter(commands.get, sources)))]
    print(*found, sep="\n", end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
