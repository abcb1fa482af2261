# SPDX-License-Identifier: Apache-2.0
"""What the tests of the documentation read: its pages, and the blocks of code in them.

Blocks inside lists are left out: CONTRIBUTING.md has such, of an operator that a test makes.
"""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "build" / "release" / "isobit"

FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)


class Block(NamedTuple):
    language: str
    text: str
    line: int  # of the page, where the text begins
    reason: str | None  # why it is not run


def pages():
    """Every Markdown file that git knows or would take up, by its path in the repository."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in listed.split("\0") if name and (ROOT / name).exists())


def text(page):
    return (ROOT / page).read_text()


def blocks(page, *languages):
    found = []
    for match in FENCE.finditer(text(page)):
        line = text(page).count("\n", 0, match.start("text")) + 1
        block = Block(match["language"], match["text"], line, match["reason"])
        if not languages or block.language in languages:
            found.append(block)
    return found


def prose(page):
    """The page without its blocks of code, lines where they were."""
    return FENCE.sub(lambda block: "\n" * block[0].count("\n"), text(page))


def lab(*arguments):
    return subprocess.run([LAB, *arguments], cwd=ROOT, capture_output=True, text=True)
