# SPDX-License-Identifier: Apache-2.0
"""Finds dead paths in Markdown, paths of one machine in any file, and sources grown too long."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 500
GENERATED = "Made by tools/faces.py"
LIMITED = {".h", ".hpp", ".cpp", ".cu", ".cuh", ".py"}

LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
KNOWN = "cpp|cuh?|hp?p?|py|md|txt|json|toml|cfg|sh|cmake"
QUOTED = re.compile(rf"`([\w.-]+(?:/[\w.-]+)+\.(?:{KNOWN}))`")
MADE_HERE = ("build/", ".venv/")
MACHINE_PATH = re.compile(r"(?<![\w.~})-])/(?:work|root|home|Users)/\w")


def files(root):
    """Tracked files, and new ones that git does not ignore: what the next commit would hold."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    return sorted(Path(name) for name in listed.stdout.split("\0") if name)


def exists(root, page, reference):
    bases = (root / page.parent, root, root / "src", root / "src" / "isobit")
    return any((base / reference).exists() for base in bases)


def check(root, paths):
    problems = []
    for path in paths:
        try:
            text = (root / path).read_text()
        except (
            UnicodeDecodeError,
            FileNotFoundError,
        ):  # an image; a file deleted but not yet staged
            continue
        lines = text.splitlines()
        generated = any(GENERATED in line for line in lines[:5])  # which nobody reads whole
        if path.suffix in LIMITED and len(lines) > MAX_LINES and not generated:
            problems.append(f"{path}: {len(lines)} lines; the limit is {MAX_LINES}")
        for number, line in enumerate(lines, 1):
            where = f"{path}:{number}"
            if found := MACHINE_PATH.search(line):
                problems.append(f"{where}: {found[0]}... is a path of one machine")
            if path.suffix == ".md":
                problems += [
                    f"{where}: {reference} does not exist"
                    for reference in LINK.findall(line) + QUOTED.findall(line)
                    if "://" not in reference
                    and not reference.startswith(("mailto:", *MADE_HERE))
                    and not exists(root, path, reference)
                ]
    return problems


def main():
    problems = check(ROOT, files(ROOT))
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
