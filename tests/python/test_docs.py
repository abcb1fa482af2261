# SPDX-License-Identifier: Apache-2.0
"""What docs/reliability.md says is tested, is."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`([A-Z]\w+)\.([A-Z]\w+)`")
DEFINED = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)|RC_GTEST_PROP\(\s*(\w+),\s*(\w+)")


def defined():
    names = set()
    for path in [*(ROOT / "tests").rglob("*.cpp"), *(ROOT / "src").glob("**/test.cpp")]:
        for match in DEFINED.findall(path.read_text()):
            names.add((match[0] or match[2], match[1] or match[3]))
    return names


def test_every_test_that_the_reliability_page_names_exists():
    named = set(NAMED.findall((ROOT / "docs" / "reliability.md").read_text()))
    named.discard(("Suite", "Name"))
    assert len(named) > 30
    assert named - defined() == set()
