#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts a new operator: copies a living one under another name and lists it beside the others.

What comes out builds and passes every generic test as it is. All of it is made before the first
file is written, and an error takes back what was written.
"""

import argparse
import keyword
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPS = Path("src/isobit/ops")
CXX = {".h", ".cpp", ".cu"}

# Where operators are listed, and how an element that names OP begins.
ROW = r'\{(?:\.op = )?"OP",'
LAWS = Path("tests/laws.h")  # which not every operator keeps
LISTS = {
    OPS / "catalog.cpp": "&OP::",
    OPS / "device_catalog.cu": r'device_variants\("OP",',
    Path("tests/golden_bits.h"): ROW,
    LAWS: ROW,
}

# Those of C++20, but for Python's; and g++'s own macros.
WORDS = """
    alignas alignof and_eq asm auto bitand bitor bool case catch char char8_t char16_t char32_t
    compl concept const consteval constexpr constinit const_cast co_await co_return co_yield
    decltype default delete do double dynamic_cast enum explicit export extern false float friend
    goto inline int long mutable namespace new noexcept not_eq nullptr operator or_eq private
    protected public register reinterpret_cast requires short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true typedef typeid typename union
    unsigned using virtual void volatile wchar_t xor xor_eq linux unix
"""

STEPS = (
    ("{op}.h norm.h problem.h {op}.cpp", "what a call takes, its options and rules"),
    ("reference.cpp cases.cpp", "the results in double and quad; shapes, families, bytes"),
    ("formula.h cpu_kernels*.cpp cpu.cpp", "the arithmetic, the vector loops, the variants"),
    ("cuda*.cu triton*.py pytorch.py", "the kernels for GPUs, and what PyTorch makes of it"),
    ("tests/laws.h", "its laws in kLaws; without any, no row"),
    ("tests/golden_bits.h", "its bits in kGolden, once they are right"),
    ("tests/calls.h", "a right call of its C function, which tests spoil"),
    ("README.md", "what it computes, guarantees and costs"),
)


class Refused(Exception):
    """Why nothing was done, and what to do about it."""


def run(command, **kwargs):
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **kwargs)
    except FileNotFoundError as missing:
        raise Refused(f"{missing.filename} not found; run `make venv`") from None
    if done.returncode != 0:
        raise Refused(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def operators():
    """The folders that define one; others hold what some of them share."""
    definitions = (ROOT / OPS).glob("*/*.cpp")
    return sorted(path.stem for path in definitions if path.stem == path.parent.name)


def use_of(word):
    """Where the C++ of the library or of its tests says a word already."""
    for path in sorted([*(ROOT / "src").rglob("*"), *(ROOT / "tests").rglob("*")]):
        if path.suffix not in CXX:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(rf"\b{word}\b", re.sub(r'"[^"]*"|//.*', "", line)):
                return f"{path.relative_to(ROOT)}:{number}"
    return None


def check(name, op):
    """The rules for a name, and for the operator that is copied."""
    if op not in operators():
        raise Refused(f"--from {op}: no such operator; known: {', '.join(operators())}")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise Refused(
            f"{name!r} is no name of an operator; take lower-case letters, digits and single "
            "underscores, a letter first, as in soft_sign"
        )
    if keyword.iskeyword(name) or name in WORDS.split():
        raise Refused(f"{name} is a keyword of C++ or Python; use another name, such as {name}_op")
    if (ROOT / OPS / name).exists():
        raise Refused(f"{OPS / name} already exists; remove it, or use another name")
    if place := use_of(name):
        raise Refused(f"{place} already uses the name {name}; use another")
    if changed := run(["git", "status", "--porcelain", "--", *LISTS, OPS / op]):
        raise Refused(
            f"commit or undo these changes first, so that the new operator can be "
            f"undone alone:\n{changed}"
        )


def renamed(text, op, name):
    """In the case that each place has; what a page links to outside its folder stays."""
    pascal = "".join(part.capitalize() for part in name.split("_"))

    def instead(match):
        word = match[0]
        if word.startswith("](.."):
            return word
        return name if word.islower() else name.upper() if word.isupper() else pascal

    # "transposed" is a word, and no name.
    return re.sub(rf"\]\(\.\.[^)]*\)|{op}(?![dr])", instead, text, flags=re.IGNORECASE)


def element(text, start):
    """The element of a list that begins there, up to its comma."""
    depth = 0
    for end in range(start, len(text)):
        depth += (text[end] in "({") - (text[end] in ")}")
        if depth == 0 and text[end] == ",":
            return text[start : end + 1]
        if depth < 0:
            break
    raise Refused(f"no comma follows {text[start:end].strip()}; write one")


def listed(path, op, name):
    """A list of operators with the elements and includes of the new one."""
    text = (ROOT / path).read_text()
    starts = [match.start() for match in re.finditer(LISTS[path].replace("OP", op), text)]
    if starts:
        end = text.index("};", starts[-1])
        rows = "".join(renamed(element(text, start), op, name) + "\n" for start in starts)
        text = text[:end] + rows + text[end:]
    elif path != LAWS:
        raise Refused(f"{path} does not list {op}; use another operator for --from")
    include = rf'^#include "isobit/ops/{op}/.*\n'
    return re.sub(include, lambda line: line[0] + renamed(line[0], op, name), text, flags=re.M)


def formatted(path, text):
    tools = ROOT / ".venv" / "bin"
    if path.suffix in CXX:
        return run([tools / "clang-format", f"--assume-filename={path}"], input=text)
    if path.suffix == ".py":
        for verb in (["check", "--fix", "--quiet"], ["format"]):
            text = run([tools / "ruff", *verb, f"--stdin-filename={path}", "-"], input=text)
    return text


def made(name, op):
    """All files that are written, with their texts."""
    texts = {path: listed(path, op, name) for path in LISTS}
    for file in run(["git", "ls-files", "--", OPS / op]).splitlines():
        text = renamed((ROOT / file).read_text(), op, name)
        if file.endswith(".md"):
            text = re.sub(r"^## Measured\n.*?(?=^## )", "", text, flags=re.M | re.S)
            head, _, rest = text.partition("\n\n")
            text = f"{head}\n\nA copy of [{op}](../{op}/README.md): write this page anew.\n\n{rest}"
        texts[OPS / name / Path(file).name.replace(op, name)] = text
    return {path: formatted(path, text) for path, text in texts.items()}


def write(texts, folder):
    """All, or nothing."""
    before = {path: (ROOT / path).read_text() for path in LISTS}
    try:
        (ROOT / folder).mkdir()
        for path, text in texts.items():
            (ROOT / path).write_text(text)
    except BaseException:
        shutil.rmtree(ROOT / folder, ignore_errors=True)
        for path, text in before.items():
            (ROOT / path).write_text(text)
        raise


def report(name, op):
    folder = ROOT / OPS / name
    lists = " ".join(map(str, LISTS))
    print(f"{OPS / name} is a copy of {op} under the new name. It is listed in\n  {lists}")
    print(f"It builds and passes as it is: make build && build/release/isobit verify {name}")
    print(
        "C and C++ get its functions from tools/faces.py after each build that changes what a call"
    )
    print("takes; then build again. NumPy and the lab call it by name.")
    print("\nChange it in this order; CONTRIBUTING.md shows it for softsign:")
    for number, (patterns, what) in enumerate(STEPS, 1):
        files = []
        for pattern in patterns.format(op=name).split():
            inside = sorted(path.name for path in folder.glob(pattern))
            files += inside if "/" not in pattern else [pattern]
        print(f"  {number}. {', '.join(files)}: {what}")
    print(f"\nTo undo everything: git checkout -- {lists} && rm -r {OPS / name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", metavar="NAME", help="name of the new operator")
    parser.add_argument(
        "--from",
        dest="op",
        metavar="OP",
        default="elementwise",
        help="operator to copy: elementwise, the default; transpose, whose arrays have any shape "
        "and strides; rmsnorm, with a backward pass",
    )
    args = parser.parse_args()
    try:
        check(args.name, args.op)
        write(made(args.name, args.op), OPS / args.name)
    except (Refused, OSError) as error:
        print(f"new_operator: {error}", file=sys.stderr)
        return 1
    report(args.name, args.op)
    return 0


if __name__ == "__main__":
    sys.exit(main())
