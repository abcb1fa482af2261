# SPDX-License-Identifier: Apache-2.0
"""Holds libisobit.so to the binary interface that abi/ records for its SONAME.

Programs that were compiled before go on working with every library of the same SONAME: entries
stay, structs keep their members in place and may grow at their end only, as struct_size allows.
Whatever changes is announced by recording it: `tools/abi.py record`, in the same commit.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "build" / "release" / "libisobit.so"
SKIPPED = 77  # tools/suite.py says so in its last lines
PUBLIC_ONLY = [
    "--drop-private-types",
    "--exported-interfaces-only",
    "--drop-undefined-syms",
    "--no-parameter-names",
]
NOT_THE_INTERFACE = [
    "--no-architecture",
    "--no-elf-needed",
    "--no-show-locs",
    "--no-comp-dir-path",
    "--no-corpus-path",
]


def interface_of(library):
    """The public interface as libabigail's XML, without paths of this machine."""
    command = ["abidw", *PUBLIC_ONLY, *NOT_THE_INTERFACE, "--type-id-style", "hash"]
    command += ["--headers-dir", ROOT / "include", library]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return re.sub(r"path='[^']*/src/", "path='src/", said)


def record_of(interface):
    """Its place: each SONAME has one."""
    return ROOT / "abi" / f"{ElementTree.fromstring(interface).get('soname')}.xml"


def structs(interface):
    """{struct: (its size, {member: (offset, type)})}"""
    return {
        each.get("name"): (
            int(each.get("size-in-bits")),
            {
                member.find("var-decl").get("name"): (
                    int(member.get("layout-offset-in-bits")),
                    member.find("var-decl").get("type-id"),
                )
                for member in each.findall("data-member")
            },
        )
        for each in ElementTree.fromstring(interface).iter("class-decl")
        if each.get("size-in-bits")
    }


def values(interface):
    """The names that a program was compiled with, as {name: value}, and the entries it calls."""
    root = ElementTree.fromstring(interface)
    names = {each.get("name"): each.get("value") for each in root.iter("enumerator")}
    return names | {each.get("name"): "an entry" for each in root.iter("elf-symbol")}


def broken(before, after):
    """What a program compiled with `before` would miss in `after`."""
    now = values(after)
    problems = [
        f"{name} was {value}, and is {now.get(name, 'gone')}"
        for name, value in values(before).items()
        if now.get(name) != value
    ]
    now = structs(after)
    for name, (size, members) in structs(before).items():
        new_size, new_members = now.get(name, (0, {}))
        if new_size < size:
            problems.append(f"{name} had {size} bits, and has {new_size}")
        problems += [
            f"{name}.{member} changed its place or its type"
            for member, where in members.items()
            if new_members.get(member) != where
        ]
    return problems


def differences(before, after):
    """What abidiff says of two interfaces; nothing where they are the same."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("before.xml", "after.xml")]
        for file, interface in zip(files, (before, after), strict=True):
            file.write_text(interface)
        told = subprocess.run(["abidiff", *files], capture_output=True, text=True)
    return told.stdout + told.stderr if told.returncode else ""


def check(interface):
    record = record_of(interface)
    name = record.relative_to(ROOT)
    if not record.exists():
        return f"{name} does not exist: `tools/abi.py record` writes it"
    if told := differences(record.read_text(), interface):
        return f"{told}\nThis is not what {name} records. `tools/abi.py record` announces it."
    return ""


def write(interface):
    record = record_of(interface)
    if record.exists() and (problems := broken(record.read_text(), interface)):
        return "\n".join(problems) + (
            f"\nThis breaks programs that use {record.stem}: raise the minor version in VERSION, "
            "which changes the SONAME."
        )
    record.parent.mkdir(exist_ok=True)
    record.write_text(interface)
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("check", "record"))
    parser.add_argument("--library", type=Path, default=LIBRARY)
    args = parser.parse_args()
    if shutil.which("abidw") is None:
        print(
            "skipped: abidw is not installed (Debian: abigail-tools), "
            "so the binary interface was not checked"
        )
        return 1 if os.environ.get("CI") else SKIPPED
    interface = interface_of(args.library)
    if problem := (check if args.verb == "check" else write)(interface):
        print(problem)
        return 1
    print(f"{record_of(interface).relative_to(ROOT)}: {len(structs(interface))} structs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
