# SPDX-License-Identifier: Apache-2.0
"""Commands in the pages exist with their flags, and quick ones of the lab print what is shown."""

import json
import re
import shlex
from functools import cache
from typing import NamedTuple

import pages
import pytest

ISOBIT = re.compile(r"^(\$ )?(?:build/release/)?isobit (.+)$")
INLINE = re.compile(r"`(?:build/release/)?isobit ([^`]+)`")
FLAG = re.compile(r"--[a-z][a-z-]*")
MAKE = re.compile(r"`make ([a-z-]+)[^`]*`|^(?:\$ )?make ([a-z-]+)", re.M)
PRESET = re.compile(r"--preset (\w+)")
# Shown with what they print, and done in seconds; `run` needs arrays, times differ each time.
QUICK = ("verify", "parity", "list")
ISAS = ("scalar", "avx2", "avx512", "neon")
# Ways that a machine may lack: it names them with its own reason.
MAY_LACK = ("NumPy", "PyTorch", "cuda:")


class Command(NamedTuple):
    text: str
    output: list[str]  # what the page shows below it, where it stands behind a `$`


def commands(page):
    """Calls of the lab, without a comment behind two blanks."""
    found = []
    for block in pages.blocks(page, "", "sh", "console"):
        output = None
        for text in block.text.replace(" \\\n    ", " ").splitlines():
            if match := ISOBIT.match(text):
                found.append(Command(re.split(r" {2,}", match[2])[0], []))
                output = found[-1].output if match[1] else None
            elif output is not None:
                output.append(text)
    return found


@cache
def known_flags(command):
    return set(FLAG.findall(pages.lab(command, "--help").stdout))


@cache
def known_commands():
    return set(re.findall(r"^  ([a-z]+) ", pages.lab("--help").stdout, re.M))


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize("page", [page for page in pages.pages() if "isobit " in pages.text(page)])
def test_commands_of_the_lab_have_the_flags_that_a_page_gives_them(page):
    inline = [text for text in INLINE.findall(pages.prose(page)) if "--" in text]
    for text in [*(command.text for command in commands(page)), *inline]:
        name, _, rest = text.partition(" ")
        if not name.isalpha():  # a flag, such as --version, or a placeholder
            continue
        assert name in known_commands(), f"{page}: isobit {text}"
        assert set(FLAG.findall(rest)) - known_flags(name) == set(), f"{page}: isobit {text}"


def shown(page):
    return [c for c in commands(page) if c.output and c.text.split()[0] in QUICK]


@cache
def isas():
    """Those that this machine can run: all up to its widest, or NEON's."""
    widest = json.loads(pages.lab("info", "--json").stdout.splitlines()[0])["isa"]
    return ("scalar", "neon") if widest == "neon" else ISAS[: ISAS.index(widest) + 1]


def elsewhere(text):
    """Whether a line needs an instruction set that this machine lacks."""
    return any(re.search(rf"\b{isa}\b", text) for isa in ISAS if isa not in isas())


@pytest.mark.parametrize(
    ("page", "number"),
    [(page, i) for page in pages.pages() for i in range(len(shown(page)))],
)
def test_commands_of_the_lab_print_what_a_page_shows(page, number):
    command = shown(page)[number]
    if elsewhere(command.text):
        pytest.skip("needs another instruction set")
    run = pages.lab(*shlex.split(command.text))
    printed = [words(line) for line in (run.stdout + run.stderr).splitlines()]
    at = 0
    for line in command.output:
        line = words(line)
        if not line or line == "..." or elsewhere(line) or line.startswith(MAY_LACK):
            continue
        assert line in printed[at:], f"{page}: isobit {command.text} prints\n" + "\n".join(
            printed[:9]
        )
        at = printed.index(line, at) + 1


def test_commands_with_what_they_print_are_found():
    assert len(shown("README.md")) == 2
    assert len(shown("docs/quickstart.md")) == 2
    assert "all configurations give the same bits" in shown("docs/quickstart.md")[0].output


def test_make_has_the_targets_that_pages_name():
    targets = set(re.findall(r"^([a-z-]+):", (pages.ROOT / "Makefile").read_text(), re.M))
    for page in pages.pages():
        named = {inline or line for inline, line in MAKE.findall(pages.text(page))}
        assert named - targets == set(), page


def test_cmake_has_the_presets_that_pages_name():
    presets = json.loads((pages.ROOT / "CMakePresets.json").read_text())
    known = {preset["name"] for preset in presets["configurePresets"]}
    for page in pages.pages():
        assert set(PRESET.findall(pages.text(page))) - known == set(), page


@pytest.mark.parametrize("page", [page for page in pages.pages() if "tools/" in pages.text(page)])
def test_tools_that_pages_call_exist(page):
    for tool in re.findall(r"`tools/([\w.]+)", pages.text(page)):
        assert (pages.ROOT / "tools" / tool).exists(), f"{page}: tools/{tool}"
